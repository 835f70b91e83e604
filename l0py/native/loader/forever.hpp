// What is there before any constructor runs, and never destroyed: other libraries call the loader while a process
// exits.
#pragma once

template <class T>
union Forever {
  constexpr Forever() noexcept : value() {}
  ~Forever() {}

  T value;
};

// Copies of two- and three-dimensional pieces of memory.
#pragma once

#include "memory_range.hpp"

namespace softdriver {

// Rows of bytes that lie `pitch` apart, in slices that lie `slice` apart.
struct Box {
  Range range;  // from its first byte to its last
  size_t pitch;
  size_t slice;
};

struct BoxSize {
  size_t row;  // in bytes
  size_t rows;
  size_t slices;
};

class BoxCopy final : public Command {
 public:
  BoxCopy(Box to, Box from, BoxSize size) : to_(std::move(to)), from_(std::move(from)), size_(size) {}
  void run() override;

 private:
  const Box to_;
  const Box from_;
  const BoxSize size_;
};

}  // namespace softdriver

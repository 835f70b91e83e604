// The driver's native graph format: everything of which a model is compiled, in one checked block.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ir.hpp"

namespace softdriver {

class NativeBinary {
 public:
  static NativeBinary pack(const ir::Container& model, std::string_view build_flags, bool profiling);
  // Copies and checks. Throws ModelError for bytes that `pack` did not make. Zeros may follow, as a file's padding
  // does.
  static NativeBinary read(ir::Bytes bytes);

  ir::Bytes bytes() const noexcept { return {data_.get(), size_}; }
  ir::Container model() const noexcept;
  std::string build_flags() const;
  bool profiling() const noexcept;

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  explicit NativeBinary(size_t size);

  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

}  // namespace softdriver

#include "box_copy.hpp"

#include <cstring>

namespace softdriver {

void BoxCopy::run() {
  for (size_t slice = 0; slice < size_.slices; ++slice) {
    for (size_t row = 0; row < size_.rows; ++row) {
      std::memmove(to_.range.start + slice * to_.slice + row * to_.pitch,
                   from_.range.start + slice * from_.slice + row * from_.pitch, size_.row);
    }
  }
}

}  // namespace softdriver

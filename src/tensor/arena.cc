#include "tensor/arena.h"

#include <algorithm>

#include "base/error.h"

namespace tutti {

Tensor Arena::allocate(std::initializer_list<int64_t> shape, DType dtype) {
  int64_t numel = 1;
  for (int64_t n : shape) numel *= n;
  const size_t bytes = dtype_bytes(dtype, numel);
  const size_t begin = (used_ + 63) / 64 * 64;
  if (begin + bytes > buffer_->bytes()) {
    throw DeviceError("activation arena too small: " + std::to_string(begin + bytes) + " bytes needed, " +
                      std::to_string(buffer_->bytes()) + " there");
  }
  used_ = begin + bytes;
  peak_ = std::max(peak_, used_);
  return Tensor::view(buffer_->data() + begin, shape, dtype, buffer_->device());
}

}  // namespace tutti

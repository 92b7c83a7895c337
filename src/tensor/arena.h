// Activations of one step: a bump allocator over one buffer whose addresses repeat from step to step.
#pragma once

#include "tensor/tensor.h"

namespace tutti {

class Arena {
 public:
  Arena(size_t bytes, Device device) : buffer_(Buffer::allocate(bytes, device)) {}
  // Over memory that is there already (pinned, say).
  explicit Arena(std::shared_ptr<Buffer> buffer) : buffer_(std::move(buffer)) {}

  // A contiguous tensor that is valid until reset(). Throws DeviceError when the arena is too small.
  Tensor allocate(std::initializer_list<int64_t> shape, DType dtype);

  // Everything handed out so far becomes free. Call at the start of a step.
  void reset() { used_ = 0; }
  // A mark to come back to: scratch of a layer is given back at its end.
  size_t mark() const { return used_; }
  void rewind(size_t mark) { used_ = mark; }

  std::byte* data() const { return buffer_->data(); }
  size_t capacity() const { return buffer_->bytes(); }
  size_t peak() const { return peak_; }

 private:
  std::shared_ptr<Buffer> buffer_;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace tutti

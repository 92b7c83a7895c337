#include "tensor/tensor.h"

#include <cstring>

#include "tensor/device_memory.h"

namespace tutti {

void Tensor::set_contiguous(std::initializer_list<int64_t> shape) {
  CHECK_LE(shape.size(), static_cast<size_t>(kMaxRank));
  rank_ = static_cast<int>(shape.size());
  int d = 0;
  for (int64_t n : shape) {
    CHECK_GE(n, 0);
    shape_[d++] = n;
  }
  int64_t stride = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    stride_[i] = stride;
    stride *= shape_[i];
  }
}

Tensor Tensor::empty(std::initializer_list<int64_t> shape, DType dtype, Device device) {
  Tensor t;
  t.dtype_ = dtype;
  t.device_ = device;
  t.set_contiguous(shape);
  auto buffer = Buffer::allocate(t.bytes(), device);
  t.data_ = buffer->data();
  t.owner_ = std::move(buffer);
  return t;
}

Tensor Tensor::zeros(std::initializer_list<int64_t> shape, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  if (device.is_cpu()) {
    std::memset(t.data_, 0, t.bytes());
  } else {
    cuda::zero_async(t.data_, t.bytes(), nullptr);
    cuda::synchronize(nullptr);
  }
  return t;
}

Tensor Tensor::view(void* data, std::initializer_list<int64_t> shape, DType dtype, Device device,
                    std::shared_ptr<const void> owner) {
  Tensor t;
  t.dtype_ = dtype;
  t.device_ = device;
  t.set_contiguous(shape);
  t.data_ = data;
  t.owner_ = std::move(owner);
  return t;
}

int64_t Tensor::numel() const {
  if (rank_ == 0) return data_ == nullptr ? 0 : 1;
  int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= shape_[i];
  return n;
}

bool Tensor::is_contiguous() const {
  int64_t stride = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    if (shape_[i] != 1 && stride_[i] != stride) return false;
    stride *= shape_[i];
  }
  return true;
}

Tensor Tensor::slice(int dim, int64_t begin, int64_t count) const {
  check_dim(dim);
  CHECK(begin >= 0 && count >= 0 && begin + count <= shape_[dim]);
  Tensor t = *this;
  t.shape_[dim] = count;
  const int64_t offset = begin * stride_[dim];
  t.data_ = static_cast<std::byte*>(data_) + dtype_bytes(dtype_, offset);
  return t;
}

Tensor Tensor::reshape(std::initializer_list<int64_t> shape) const {
  CHECK(is_contiguous());
  Tensor t = *this;
  t.set_contiguous(shape);
  CHECK_EQ(t.numel(), numel());
  return t;
}

Tensor Tensor::split_last(int64_t a, int64_t b) const {
  CHECK(rank_ >= 1 && rank_ < kMaxRank);
  CHECK_EQ(shape_[rank_ - 1], a * b);
  Tensor t = *this;
  t.rank_ = rank_ + 1;
  t.shape_[rank_ - 1] = a;
  t.stride_[rank_ - 1] = b;
  t.shape_[rank_] = b;
  t.stride_[rank_] = 1;
  return t;
}

std::string Tensor::describe() const {
  std::string text(dtype_name(dtype_));
  text += "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape_[i]);
  }
  return text + "]";
}

}  // namespace tutti

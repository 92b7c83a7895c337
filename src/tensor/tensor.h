// A view of memory: element type, shape, strides, device, and shared ownership of the buffer behind it. Views only: no
// broadcasting, no arithmetic, no copies behind your back. The last dimension is always contiguous; the others have
// strides, so a slice of rows or of columns is a view. Dimension names everywhere: num_tokens, hidden_size, num_heads,
// num_kv_heads, head_dim, block_size.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "base/check.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace tutti {

class Tensor {
 public:
  static constexpr int kMaxRank = 4;

  Tensor() = default;  // empty: data() is nullptr

  // A new contiguous tensor with undefined contents. Throws DeviceError when the memory is not there.
  static Tensor empty(std::initializer_list<int64_t> shape, DType dtype, Device device = Device::cpu());
  static Tensor zeros(std::initializer_list<int64_t> shape, DType dtype, Device device = Device::cpu());
  // A contiguous view of memory that `owner` keeps alive (nullptr: the caller does).
  static Tensor view(void* data, std::initializer_list<int64_t> shape, DType dtype, Device device = Device::cpu(),
                     std::shared_ptr<const void> owner = nullptr);

  bool defined() const { return data_ != nullptr; }
  int rank() const { return rank_; }
  int64_t size(int dim) const { return shape_[check_dim(dim)]; }
  int64_t stride(int dim) const { return stride_[check_dim(dim)]; }  // in elements
  int64_t numel() const;
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  size_t bytes() const { return dtype_bytes(dtype_, numel()); }
  // Bytes between the starts of two neighbours along `dim` (whole blocks for block types).
  size_t stride_bytes(int dim) const { return dtype_bytes(dtype_, stride(dim)); }
  bool is_contiguous() const;

  void* data() const { return data_; }
  template <typename T>
  T* data_as() const {
    return static_cast<T*>(data_);
  }
  // Start of row `index` of dimension 0.
  template <typename T>
  T* row(int64_t index) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + static_cast<size_t>(index) * stride_bytes(0));
  }

  // [begin, begin + count) along `dim`. For the last dimension of a block type both are multiples of the block size.
  Tensor slice(int dim, int64_t begin, int64_t count) const;
  // Another shape over the same contiguous elements.
  Tensor reshape(std::initializer_list<int64_t> shape) const;
  // The last dimension cut in two: [n, a * b] -> [n, a, b]; keeps the stride of the rows.
  Tensor split_last(int64_t a, int64_t b) const;

  std::string describe() const;  // "BF16[4096, 576]"

 private:
  int check_dim(int dim) const {
    CHECK(dim >= 0 && dim < rank_);
    return dim;
  }
  void set_contiguous(std::initializer_list<int64_t> shape);

  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
  std::array<int64_t, kMaxRank> shape_{};
  std::array<int64_t, kMaxRank> stride_{};
  int rank_ = 0;
  DType dtype_ = DType::kF32;
  Device device_;
};

}  // namespace tutti

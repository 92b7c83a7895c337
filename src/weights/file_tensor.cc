#include "weights/file_tensor.h"

#include <limits>

namespace tutti {

std::optional<int64_t> checked_numel(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  bool empty = false;
  for (int64_t n : shape) {
    if (n < 0) return std::nullopt;
    if (n == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(count, n, &count)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : count;
}

std::optional<size_t> checked_bytes(DType dtype, const std::vector<int64_t>& shape) {
  const DTypeInfo& info = dtype_info(dtype);
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % info.block_size != 0) return std::nullopt;
  const std::optional<int64_t> count = checked_numel(shape);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count / info.block_size, int64_t{info.block_bytes}, &bytes))
    return std::nullopt;
  return static_cast<size_t>(bytes);
}

size_t element_alignment(DType dtype) {
  // Blocks begin with, or hold, half-precision scales.
  if (is_quantized(dtype)) return 2;
  return static_cast<size_t>(dtype_info(dtype).block_bytes);
}

std::string quote_name(std::string_view name) {
  constexpr size_t kLongest = 80;
  std::string text = "'";
  for (char c : name.substr(0, kLongest))
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (name.size() > kLongest) text += "...";
  return text + "'";
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace tutti

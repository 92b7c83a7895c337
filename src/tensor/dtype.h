// Element types, the block-quantised ones of GGUF included. A block type stores `block_size` consecutive elements of a
// row in `block_bytes` bytes; plain types have block_size 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class DType : uint8_t {
  kF32, kF16, kBF16, kF8E4M3, kI8, kU8, kI32, kI64,
  // Names and layouts as in GGUF.
  kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS,
  kCount,
};

struct DTypeInfo {
  std::string_view name;  // "BF16", "Q4_1", ...
  int block_size;         // elements in a block
  int block_bytes;        // bytes of a block
};

const DTypeInfo& dtype_info(DType dtype);
inline std::string_view dtype_name(DType dtype) { return dtype_info(dtype).name; }
inline bool is_quantized(DType dtype) { return dtype_info(dtype).block_size > 1; }

// Bytes of `count` elements; `count` is a multiple of the block size.
size_t dtype_bytes(DType dtype, int64_t count);

// "BF16", "bf16", "q4_1"; nothing for an unknown name.
std::optional<DType> dtype_from_name(std::string_view name);

}  // namespace tutti

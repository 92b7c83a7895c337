#include "tensor/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace tutti {
namespace {

int low_nibble(uint8_t byte) { return byte & 15; }
int high_nibble(uint8_t byte) { return byte >> 4; }

void dequantize(const BlockQ8_0& b, float* out) {
  const float d = half_to_float(b.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(b.qs[i]);
}

void dequantize(const BlockQ4_0& b, float* out) {
  const float d = half_to_float(b.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(low_nibble(b.qs[i]) - 8);
    out[i + 16] = d * static_cast<float>(high_nibble(b.qs[i]) - 8);
  }
}

void dequantize(const BlockQ4_1& b, float* out) {
  const float d = half_to_float(b.d);
  const float m = half_to_float(b.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(low_nibble(b.qs[i])) + m;
    out[i + 16] = d * static_cast<float>(high_nibble(b.qs[i])) + m;
  }
}

// Element i of 32 whose fifth bits lie in qh.
int five_bits(const uint8_t* qs, const uint8_t* qh, int i) {
  const int low = i < 16 ? low_nibble(qs[i]) : high_nibble(qs[i - 16]);
  return low | (((qh[i / 8] >> (i % 8)) & 1) << 4);
}

void dequantize(const BlockQ5_0& b, float* out) {
  const float d = half_to_float(b.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(five_bits(b.qs, b.qh, i) - 16);
}

void dequantize(const BlockQ5_1& b, float* out) {
  const float d = half_to_float(b.d);
  const float m = half_to_float(b.m);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(five_bits(b.qs, b.qh, i)) + m;
}

// Element i of 256 in 2 bits: each half of 128 elements takes 32 bytes, whose bit pairs are 32
// elements apart.
int two_bits(const uint8_t* qs, int i) {
  return (qs[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4))) & 3;
}

void dequantize(const BlockQ2_K& b, float* out) {
  const float d = half_to_float(b.d);
  const float dmin = half_to_float(b.dmin);
  for (int i = 0; i < kSuperBlock; ++i) {
    const uint8_t scale = b.scales[i / 16];
    const float offset = dmin * static_cast<float>(high_nibble(scale));
    out[i] =
        d * static_cast<float>(low_nibble(scale)) * static_cast<float>(two_bits(b.qs, i)) - offset;
  }
}

void dequantize(const BlockQ3_K& b, float* out) {
  const float d = half_to_float(b.d);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int third_bit = (b.hmask[i % 32] >> (i / 32)) & 1;
    const int q = (two_bits(b.qs, i) | (third_bit << 2)) - 4;
    out[i] = d * static_cast<float>(q3_k_scale(b.scales, i / 16)) * static_cast<float>(q);
  }
}

// Element i of 256 in nibbles: 32 bytes hold 64 elements.
int nibble_of_64(const uint8_t* qs, int i) {
  return (qs[i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2))) & 15;
}

void dequantize(const BlockQ4_K& b, float* out) {
  const float d = half_to_float(b.d);
  const float dmin = half_to_float(b.dmin);
  for (int i = 0; i < kSuperBlock; ++i) {
    const ScaleMin group = q4_k_scale_min(b.scales, i / 32);
    const float offset = dmin * static_cast<float>(group.min);
    out[i] =
        d * static_cast<float>(group.scale) * static_cast<float>(nibble_of_64(b.qs, i)) - offset;
  }
}

void dequantize(const BlockQ5_K& b, float* out) {
  const float d = half_to_float(b.d);
  const float dmin = half_to_float(b.dmin);
  for (int i = 0; i < kSuperBlock; ++i) {
    const ScaleMin group = q4_k_scale_min(b.scales, i / 32);
    const int fifth_bit = (b.qh[i % 32] >> (i / 32)) & 1;
    const float offset = dmin * static_cast<float>(group.min);
    out[i] = d * static_cast<float>(group.scale) *
                 static_cast<float>(nibble_of_64(b.qs, i) | (fifth_bit << 4)) -
             offset;
  }
}

void dequantize(const BlockQ6_K& b, float* out) {
  const float d = half_to_float(b.d);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int low = (b.ql[i / 128 * 64 + i % 64] >> (4 * (i / 64 % 2))) & 15;
    const int q = (low | (two_bits(b.qh, i) << 4)) - 32;
    out[i] = d * static_cast<float>(b.scales[i / 16]) * static_cast<float>(q);
  }
}

void dequantize(const BlockIQ4_NL& b, float* out) {
  const float d = half_to_float(b.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIq4Levels[low_nibble(b.qs[i])]);
    out[i + 16] = d * static_cast<float>(kIq4Levels[high_nibble(b.qs[i])]);
  }
}

void dequantize(const BlockIQ4_XS& b, float* out) {
  const float d = half_to_float(b.d);
  for (int g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(iq4_xs_scale(b, g));
    for (int j = 0; j < 16; ++j) {
      const uint8_t pair = b.qs[g * 16 + j];
      out[g * 32 + j] = scale * static_cast<float>(kIq4Levels[low_nibble(pair)]);
      out[g * 32 + j + 16] = scale * static_cast<float>(kIq4Levels[high_nibble(pair)]);
    }
  }
}

// Rows of a mapped file may start at odd addresses, so that a block is copied before its fields are
// read.
template <typename Block>
void dequantize_blocks(const void* row, int64_t count, int elements, float* out) {
  const auto* bytes = static_cast<const std::byte*>(row);
  for (int64_t i = 0; i < count; i += elements, bytes += sizeof(Block)) {
    Block block;
    std::memcpy(&block, bytes, sizeof(Block));
    dequantize(block, out + i);
  }
}

template <typename T, typename Convert>
void convert_elements(const void* row, int64_t count, float* out, Convert convert) {
  const auto* bytes = static_cast<const std::byte*>(row);
  for (int64_t i = 0; i < count; ++i, bytes += sizeof(T)) {
    T element;
    std::memcpy(&element, bytes, sizeof(T));
    out[i] = convert(element);
  }
}

}  // namespace

void dequantize_row(DType dtype, const void* row, int64_t count, float* out) {
  const int elements = dtype_info(dtype).block_size;
  CHECK_EQ(count % elements, 0);
  const auto cast = [](auto value) { return static_cast<float>(value); };
  switch (dtype) {
    case DType::kF32:
      return convert_elements<float>(row, count, out, cast);
    case DType::kF16:
      return convert_elements<uint16_t>(row, count, out, half_to_float);
    case DType::kBF16:
      return convert_elements<uint16_t>(row, count, out, bfloat16_to_float);
    case DType::kF8E4M3:
      return convert_elements<uint8_t>(row, count, out, float8_e4m3_to_float);
    case DType::kI8:
      return convert_elements<int8_t>(row, count, out, cast);
    case DType::kU8:
      return convert_elements<uint8_t>(row, count, out, cast);
    case DType::kI32:
      return convert_elements<int32_t>(row, count, out, cast);
    case DType::kI64:
      return convert_elements<int64_t>(row, count, out, cast);
    case DType::kQ8_0:
      return dequantize_blocks<BlockQ8_0>(row, count, elements, out);
    case DType::kQ4_0:
      return dequantize_blocks<BlockQ4_0>(row, count, elements, out);
    case DType::kQ4_1:
      return dequantize_blocks<BlockQ4_1>(row, count, elements, out);
    case DType::kQ5_0:
      return dequantize_blocks<BlockQ5_0>(row, count, elements, out);
    case DType::kQ5_1:
      return dequantize_blocks<BlockQ5_1>(row, count, elements, out);
    case DType::kQ2_K:
      return dequantize_blocks<BlockQ2_K>(row, count, elements, out);
    case DType::kQ3_K:
      return dequantize_blocks<BlockQ3_K>(row, count, elements, out);
    case DType::kQ4_K:
      return dequantize_blocks<BlockQ4_K>(row, count, elements, out);
    case DType::kQ5_K:
      return dequantize_blocks<BlockQ5_K>(row, count, elements, out);
    case DType::kQ6_K:
      return dequantize_blocks<BlockQ6_K>(row, count, elements, out);
    case DType::kIQ4_NL:
      return dequantize_blocks<BlockIQ4_NL>(row, count, elements, out);
    case DType::kIQ4_XS:
      return dequantize_blocks<BlockIQ4_XS>(row, count, elements, out);
    case DType::kCount:
      break;
  }
  CHECK(dtype != DType::kCount);
}

}  // namespace tutti

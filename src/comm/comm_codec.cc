#include "comm/comm_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/half.h"

namespace tutti {
namespace {

constexpr float kLargestI8 = 127.0f;
constexpr float kLargestF8 = 448.0f;
// Adding and subtracting it rounds a float below 2^22 to a whole number, ties to even.
constexpr float kRounder = 12582912.0f;

// The largest magnitude as bits; those of a NaN are above all others.
uint32_t largest_magnitude(const float* in, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(in[i]) & 0x7fffffffu);
  return largest;
}

uint8_t to_i8(float x) {
  return static_cast<uint8_t>(static_cast<int32_t>((x + kRounder) - kRounder));
}

// |x| is at most 448. Above 2^-6 the mantissa is rounded to three bits, below to multiples of 2^-9;
// ties to even.
uint8_t to_f8(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
  const float tiny = std::bit_cast<float>(magnitude) + 0x1p14f;  // the sum's last bit is worth 2^-9
  const uint32_t subnormal = std::bit_cast<uint32_t>(tiny) - std::bit_cast<uint32_t>(0x1p14f);
  return static_cast<uint8_t>(sign | (magnitude < 0x3c800000u ? subnormal : normal));
}

const std::array<float, 256>& f8_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> table;
    for (size_t i = 0; i < table.size(); ++i)
      table[i] = float8_e4m3_to_float(static_cast<uint8_t>(i));
    return table;
  }();
  return values;
}

void encode_block(CodecBlock& out, const float* in, int64_t count, CommDType type) {
  const uint32_t largest = largest_magnitude(in, count);
  std::memset(out.codes, 0, sizeof out.codes);
  if (largest >= 0x7f800000u) {
    out.scale = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  out.scale = std::bit_cast<float>(largest) / (type == CommDType::kI8 ? kLargestI8 : kLargestF8);
  if (out.scale < std::numeric_limits<float>::min()) {  // all zero, or too small for a scale
    out.scale = 0;
    return;
  }
  const float inverse = 1.0f / out.scale;
  if (type == CommDType::kI8) {
    for (int64_t i = 0; i < count; ++i) out.codes[i] = to_i8(in[i] * inverse);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      out.codes[i] = to_f8(std::clamp(in[i] * inverse, -kLargestF8, kLargestF8));
    }
  }
}

void decode_block(float* out, const CodecBlock& in, int64_t count, CommDType type) {
  if (type == CommDType::kI8) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = in.scale * static_cast<float>(static_cast<int8_t>(in.codes[i]));
  } else {
    const std::array<float, 256>& values = f8_values();
    for (int64_t i = 0; i < count; ++i) out[i] = in.scale * values[in.codes[i]];
  }
}

}  // namespace

std::optional<CommDType> comm_dtype_from_name(std::string_view name) {
  if (name == "auto") return CommDType::kFull;
  if (name == "int8") return CommDType::kI8;
  if (name == "fp8") return CommDType::kF8;
  return std::nullopt;
}

void encode(CodecBlock* out, const float* in, int64_t count, CommDType type) {
  CHECK(type != CommDType::kFull);
  for (int64_t begin = 0; begin < count; begin += kCodecBlock) {
    encode_block(*out++, in + begin, std::min(kCodecBlock, count - begin), type);
  }
}

void sum_encoded(float* out, const CodecBlock* const* parts, int num_parts, int64_t count,
                 CommDType type) {
  float addend[kCodecBlock];
  for (int64_t block = 0; block < codec_blocks(count); ++block) {
    float* sum = out + block * kCodecBlock;
    const int64_t n = std::min(kCodecBlock, count - block * kCodecBlock);
    decode_block(sum, parts[0][block], n, type);
    for (int p = 1; p < num_parts; ++p) {
      decode_block(addend, parts[p][block], n, type);
      for (int64_t i = 0; i < n; ++i) sum[i] += addend[i];
    }
  }
}

}  // namespace tutti

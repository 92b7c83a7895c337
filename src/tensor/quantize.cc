#include "tensor/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/quant_blocks.h"

namespace tutti {
namespace {

// Truncates into [low, high]; a NaN becomes `low`.
int clamp_level(float value, int low, int high) {
  if (!(value > static_cast<float>(low))) return low;
  return value >= static_cast<float>(high) ? high : static_cast<int>(value);
}
int clamp_round(float value, int low, int high) {
  return clamp_level(std::round(value), low, high);
}

float inverse(float value) { return value == 0 ? 0.0F : 1.0F / value; }

// The element with the largest magnitude (the first of equals), with its sign.
float signed_extreme(const float* x, int count) {
  return *std::max_element(x, x + count,
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
}

void quantize(const float* x, BlockQ8_0& b) {
  const float d = std::abs(signed_extreme(x, 32)) / 127;
  b.d = float_to_half(d);
  for (int i = 0; i < 32; ++i)
    b.qs[i] = static_cast<int8_t>(clamp_round(x[i] * inverse(d), -128, 127));
}

template <size_t N>
void put_nibbles(const std::array<int, 32>& levels, uint8_t (&qs)[N]) {
  static_assert(N == 16);
  for (size_t i = 0; i < N; ++i)
    qs[i] = static_cast<uint8_t>((levels[i] & 15) | ((levels[i + 16] & 15) << 4));
}

void put_fifth_bits(const std::array<int, 32>& levels, uint8_t (&qh)[4]) {
  std::memset(qh, 0, sizeof(qh));
  for (size_t i = 0; i < 32; ++i) qh[i / 8] |= static_cast<uint8_t>((levels[i] >> 4) << (i % 8));
}

// x = d * (q - half): the extreme becomes level 0. Returns d.
float symmetric_levels(const float* x, int half, std::array<int, 32>& levels) {
  const float d = signed_extreme(x, 32) / static_cast<float>(-half);
  const float scale = inverse(d);
  for (size_t i = 0; i < 32; ++i) {
    levels[i] = clamp_level(x[i] * scale + (static_cast<float>(half) + 0.5F), 0, 2 * half - 1);
  }
  return d;
}

struct Affine {
  float d, m;
};

// x = d * q + m with levels 0..highest.
Affine affine_levels(const float* x, int highest, std::array<int, 32>& levels) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const Affine affine{(*high - *low) / static_cast<float>(highest), *low};
  const float scale = inverse(affine.d);
  for (size_t i = 0; i < 32; ++i)
    levels[i] = clamp_level((x[i] - affine.m) * scale + 0.5F, 0, highest);
  return affine;
}

void quantize(const float* x, BlockQ4_0& b) {
  std::array<int, 32> levels;
  b.d = float_to_half(symmetric_levels(x, 8, levels));
  put_nibbles(levels, b.qs);
}

void quantize(const float* x, BlockQ5_0& b) {
  std::array<int, 32> levels;
  b.d = float_to_half(symmetric_levels(x, 16, levels));
  put_nibbles(levels, b.qs);
  put_fifth_bits(levels, b.qh);
}

void quantize(const float* x, BlockQ4_1& b) {
  std::array<int, 32> levels;
  const Affine affine = affine_levels(x, 15, levels);
  b.d = float_to_half(affine.d);
  b.m = float_to_half(affine.m);
  put_nibbles(levels, b.qs);
}

void quantize(const float* x, BlockQ5_1& b) {
  std::array<int, 32> levels;
  const Affine affine = affine_levels(x, 31, levels);
  b.d = float_to_half(affine.d);
  b.m = float_to_half(affine.m);
  put_nibbles(levels, b.qs);
  put_fifth_bits(levels, b.qh);
}

// ---- super-blocks of 256 with quantised scales ----

float through_half(float value, uint16_t& half) {
  half = float_to_half(value);
  return half_to_float(half);
}

// Groups with x = scale * q - min, whose scales and mins are again levels of d and dmin.
template <int kGroups>
struct AffineGroups {
  static constexpr int kSize = kSuperBlock / kGroups;
  std::array<int, kGroups> scale, min;
  float d, dmin;

  AffineGroups(const float* x, int highest, int highest_scale, uint16_t& half_d,
               uint16_t& half_dmin) {
    std::array<float, kGroups> ranges, offsets;
    for (int g = 0; g < kGroups; ++g) {
      const auto [low, high] = std::minmax_element(x + g * kSize, x + (g + 1) * kSize);
      offsets[g] = std::max(-*low, 0.0F);
      ranges[g] = std::max(*high + offsets[g], 0.0F) / static_cast<float>(highest);
    }
    const auto top = static_cast<float>(highest_scale);
    d = through_half(*std::max_element(ranges.begin(), ranges.end()) / top, half_d);
    dmin = through_half(*std::max_element(offsets.begin(), offsets.end()) / top, half_dmin);
    for (int g = 0; g < kGroups; ++g) {
      scale[g] = clamp_round(ranges[g] * inverse(d), 0, highest_scale);
      min[g] = clamp_round(offsets[g] * inverse(dmin), 0, highest_scale);
    }
  }

  int level(float x, int i, int highest) const {
    const int g = i / kSize;
    const float offset = dmin * static_cast<float>(min[g]);
    return clamp_round((x + offset) * inverse(d * static_cast<float>(scale[g])), 0, highest);
  }
};

// Groups with x = scale * q, whose signed scales are levels -lowest..lowest-1 of d.
template <int kGroups>
struct SymmetricGroups {
  static constexpr int kSize = kSuperBlock / kGroups;
  std::array<int, kGroups> scale;
  float d;

  // `extreme`: the level that the extreme of a group takes.
  SymmetricGroups(const float* x, float extreme, int lowest, uint16_t& half_d) {
    std::array<float, kGroups> scales;
    for (int g = 0; g < kGroups; ++g) scales[g] = signed_extreme(x + g * kSize, kSize) / extreme;
    d = through_half(signed_extreme(scales.data(), kGroups) / static_cast<float>(-lowest), half_d);
    for (int g = 0; g < kGroups; ++g)
      scale[g] = clamp_round(scales[g] * inverse(d), -lowest, lowest - 1);
  }

  float scaled(float x, int i) const {
    return x * inverse(d * static_cast<float>(scale[i / kSize]));
  }
};

void put_two_bits(int level, int i, uint8_t* qs) {
  qs[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((level & 3) << (2 * (i / 32 % 4)));
}

void quantize(const float* x, BlockQ2_K& b) {
  b = {};
  const AffineGroups<16> groups(x, 3, 15, b.d, b.dmin);
  for (int g = 0; g < 16; ++g)
    b.scales[g] = static_cast<uint8_t>(groups.scale[g] | (groups.min[g] << 4));
  for (int i = 0; i < kSuperBlock; ++i) put_two_bits(groups.level(x[i], i, 3), i, b.qs);
}

void quantize(const float* x, BlockQ3_K& b) {
  b = {};
  const SymmetricGroups<16> groups(x, -4, 32, b.d);
  for (int g = 0; g < 16; ++g) {
    const int stored = groups.scale[g] + 32;
    b.scales[g % 8] |= static_cast<uint8_t>((stored & 15) << (4 * (g / 8)));
    b.scales[8 + g % 4] |= static_cast<uint8_t>((stored >> 4) << (2 * (g / 4)));
  }
  for (int i = 0; i < kSuperBlock; ++i) {
    const int level = clamp_round(groups.scaled(x[i], i), -4, 3) + 4;
    put_two_bits(level, i, b.qs);
    b.hmask[i % 32] |= static_cast<uint8_t>((level >> 2) << (i / 32));
  }
}

void put_scale_mins(const AffineGroups<8>& groups, uint8_t (&scales)[12]) {
  for (int g = 0; g < 4; ++g) {
    const int scale = groups.scale[g + 4];
    const int min = groups.min[g + 4];
    scales[g] = static_cast<uint8_t>(groups.scale[g] | ((scale >> 4) << 6));
    scales[g + 4] = static_cast<uint8_t>(groups.min[g] | ((min >> 4) << 6));
    scales[g + 8] = static_cast<uint8_t>((scale & 15) | ((min & 15) << 4));
  }
}

void put_nibble_of_64(int level, int i, uint8_t* qs) {
  qs[i / 64 * 32 + i % 32] |= static_cast<uint8_t>((level & 15) << (4 * (i / 32 % 2)));
}

void quantize(const float* x, BlockQ4_K& b) {
  b = {};
  const AffineGroups<8> groups(x, 15, 63, b.d, b.dmin);
  put_scale_mins(groups, b.scales);
  for (int i = 0; i < kSuperBlock; ++i) put_nibble_of_64(groups.level(x[i], i, 15), i, b.qs);
}

void quantize(const float* x, BlockQ5_K& b) {
  b = {};
  const AffineGroups<8> groups(x, 31, 63, b.d, b.dmin);
  put_scale_mins(groups, b.scales);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int level = groups.level(x[i], i, 31);
    put_nibble_of_64(level, i, b.qs);
    b.qh[i % 32] |= static_cast<uint8_t>((level >> 4) << (i / 32));
  }
}

void quantize(const float* x, BlockQ6_K& b) {
  b = {};
  const SymmetricGroups<16> groups(x, -32, 128, b.d);
  for (int g = 0; g < 16; ++g) b.scales[g] = static_cast<int8_t>(groups.scale[g]);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int level = clamp_round(groups.scaled(x[i], i), -32, 31) + 32;
    b.ql[i / 128 * 64 + i % 64] |= static_cast<uint8_t>((level & 15) << (4 * (i / 64 % 2)));
    put_two_bits(level >> 4, i, b.qh);
  }
}

int nearest_iq4_level(float value) {
  int best = 0;
  for (int q = 1; q < 16; ++q) {
    if (std::abs(value - kIq4Levels[q]) < std::abs(value - kIq4Levels[best])) best = q;
  }
  return best;
}

void quantize(const float* x, BlockIQ4_NL& b) {
  const float d = through_half(signed_extreme(x, 32) / kIq4Levels[0], b.d);
  std::array<int, 32> levels;
  for (size_t i = 0; i < 32; ++i) levels[i] = nearest_iq4_level(x[i] * inverse(d));
  put_nibbles(levels, b.qs);
}

void quantize(const float* x, BlockIQ4_XS& b) {
  b = {};
  const SymmetricGroups<8> groups(x, kIq4Levels[0], 32, b.d);
  for (int g = 0; g < 8; ++g) {
    const int stored = groups.scale[g] + 32;
    b.scales_l[g / 2] |= static_cast<uint8_t>((stored & 15) << (4 * (g % 2)));
    b.scales_h |= static_cast<uint16_t>((stored >> 4) << (2 * g));
  }
  for (int i = 0; i < kSuperBlock; ++i) {
    const int level = nearest_iq4_level(groups.scaled(x[i], i));
    b.qs[i / 32 * 16 + i % 16] |= static_cast<uint8_t>(level << (4 * (i / 16 % 2)));
  }
}

template <typename Block>
void quantize_blocks(const float* in, int64_t count, int elements, void* row) {
  auto* bytes = static_cast<std::byte*>(row);
  for (int64_t i = 0; i < count; i += elements, bytes += sizeof(Block)) {
    Block block;
    quantize(in + i, block);
    std::memcpy(bytes, &block, sizeof(Block));
  }
}

}  // namespace

void quantize_row(const float* in, int64_t count, DType dtype, void* row) {
  const int elements = dtype_info(dtype).block_size;
  CHECK_EQ(count % elements, 0);
  switch (dtype) {
    case DType::kF32:
      std::memcpy(row, in, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kF16:
      std::transform(in, in + count, static_cast<uint16_t*>(row), float_to_half);
      return;
    case DType::kBF16:
      std::transform(in, in + count, static_cast<uint16_t*>(row), float_to_bfloat16);
      return;
    case DType::kQ8_0:
      return quantize_blocks<BlockQ8_0>(in, count, elements, row);
    case DType::kQ4_0:
      return quantize_blocks<BlockQ4_0>(in, count, elements, row);
    case DType::kQ4_1:
      return quantize_blocks<BlockQ4_1>(in, count, elements, row);
    case DType::kQ5_0:
      return quantize_blocks<BlockQ5_0>(in, count, elements, row);
    case DType::kQ5_1:
      return quantize_blocks<BlockQ5_1>(in, count, elements, row);
    case DType::kQ2_K:
      return quantize_blocks<BlockQ2_K>(in, count, elements, row);
    case DType::kQ3_K:
      return quantize_blocks<BlockQ3_K>(in, count, elements, row);
    case DType::kQ4_K:
      return quantize_blocks<BlockQ4_K>(in, count, elements, row);
    case DType::kQ5_K:
      return quantize_blocks<BlockQ5_K>(in, count, elements, row);
    case DType::kQ6_K:
      return quantize_blocks<BlockQ6_K>(in, count, elements, row);
    case DType::kIQ4_NL:
      return quantize_blocks<BlockIQ4_NL>(in, count, elements, row);
    case DType::kIQ4_XS:
      return quantize_blocks<BlockIQ4_XS>(in, count, elements, row);
    default:
      TUTTI_CHECK_FAILED("no quantiser for " + std::string(dtype_info(dtype).name));
  }
}

}  // namespace tutti

#include "tensor/half.h"

#include <gtest/gtest.h>

#include <vector>

#include "tensor/dequantize.h"

namespace tutti {
namespace {

TEST(Half, EveryPatternSurvives) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const float value = half_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      EXPECT_EQ(float_to_half(value), half);
    }
  }
  EXPECT_EQ(half_to_float(0x3c00), 1.0F);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0F);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24F);
  EXPECT_EQ(half_to_float(0xfc00), -std::numeric_limits<float>::infinity());
}

TEST(Half, RoundsToNearestTiesToEven) {
  for (uint16_t h = 0; h < 0x7bff; ++h) {
    const float low = half_to_float(h);
    const float high = half_to_float(static_cast<uint16_t>(h + 1));
    const float middle = (low + high) / 2;  // exact in float
    EXPECT_EQ(float_to_half(middle), h % 2 == 0 ? h : h + 1);
    EXPECT_EQ(float_to_half(std::nextafter(middle, low)), h);
    EXPECT_EQ(float_to_half(-std::nextafter(middle, high)), 0x8000 | (h + 1));
  }
  EXPECT_EQ(float_to_half(65519.996F), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0F), 0x7c00);
  EXPECT_EQ(float_to_half(1e30F), 0x7c00);
  EXPECT_EQ(float_to_half(-1e-30F), 0x8000);
}

TEST(BFloat16, RoundsToNearestTiesToEven) {
  EXPECT_EQ(float_to_bfloat16(1.0F), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3f808000U)), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3f818000U)), 0x3f82);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_EQ(float_to_bfloat16(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7f800001U)))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bfloat16_to_float(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      EXPECT_EQ(float_to_bfloat16(value), bits);
    }
  }
}

TEST(Float8, HasTheValuesOfE4M3) {
  EXPECT_EQ(float8_e4m3_to_float(0x00), 0.0F);
  EXPECT_EQ(float8_e4m3_to_float(0x01), 0x1p-9F);
  EXPECT_EQ(float8_e4m3_to_float(0x38), 1.0F);
  EXPECT_EQ(float8_e4m3_to_float(0x7e), 448.0F);
  EXPECT_EQ(float8_e4m3_to_float(0xfe), -448.0F);
  EXPECT_TRUE(std::isnan(float8_e4m3_to_float(0x7f)));
}

TEST(Dequantize, ReadsPlainTypesAtOddAddresses) {
  std::vector<unsigned char> bytes(1 + 2 * sizeof(int64_t));
  const int64_t values[] = {-3, 1LL << 40};
  std::copy_n(reinterpret_cast<const unsigned char*>(values), sizeof(values), bytes.begin() + 1);
  float out[2];
  dequantize_row(DType::kI64, bytes.data() + 1, 2, out);
  EXPECT_EQ(out[0], -3.0F);
  EXPECT_EQ(out[1], 0x1p40F);
  const int8_t small[] = {-128, 127};
  dequantize_row(DType::kI8, small, 2, out);
  EXPECT_EQ(out[0], -128.0F);
  dequantize_row(DType::kU8, small, 2, out);
  EXPECT_EQ(out[0], 128.0F);
}

}  // namespace
}  // namespace tutti

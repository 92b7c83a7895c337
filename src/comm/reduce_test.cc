#include "comm/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "comm/slices.h"

namespace tutti {
namespace {

float through_half(float value, DType dtype) {
  uint16_t half = 0;
  from_float(&half, &value, 1, dtype);
  float back = 0;
  to_float(&back, &half, 1, dtype);
  return back;
}

TEST(Reduce, HalfRoundsToNearestEven) {
  EXPECT_EQ(through_half(1.0f + 0x1p-11f, DType::kF16), 1.0f);  // a tie, to even
  EXPECT_EQ(through_half(1.0f + 3 * 0x1p-11f, DType::kF16), 1.0f + 0x1p-9f);
  EXPECT_EQ(through_half(65519.0f, DType::kF16), 65504.0f);
  EXPECT_TRUE(std::isinf(through_half(65520.0f, DType::kF16)));
  EXPECT_EQ(through_half(0x1p-24f, DType::kF16), 0x1p-24f);  // the smallest subnormal
  EXPECT_EQ(through_half(0x1p-25f, DType::kF16), 0.0f);
  EXPECT_EQ(through_half(-1.0f - 0x1p-8f, DType::kBF16), -1.0f);
  EXPECT_EQ(through_half(-1.0f - 3 * 0x1p-8f, DType::kBF16), -1.0f - 0x1p-6f);
  EXPECT_TRUE(std::isnan(through_half(std::nanf(""), DType::kF16)));
  EXPECT_TRUE(std::isnan(through_half(std::nanf(""), DType::kBF16)));
}

// Vector instructions convert the long run, plain code the single elements.
TEST(Reduce, EveryHalfConvertsTheSameAloneAndInARow) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    std::vector<uint16_t> halves(1 << 16);
    for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
    std::vector<float> floats(halves.size());
    to_float(floats.data(), halves.data(), static_cast<int64_t>(halves.size()), dtype);
    std::vector<uint16_t> back(halves.size());
    from_float(back.data(), floats.data(), static_cast<int64_t>(floats.size()), dtype);
    for (size_t i = 0; i < halves.size(); ++i) {
      float alone = 0;
      to_float(&alone, &halves[i], 1, dtype);
      if (std::isnan(alone)) {
        EXPECT_TRUE(std::isnan(floats[i]));
        continue;
      }
      ASSERT_EQ(std::bit_cast<uint32_t>(alone), std::bit_cast<uint32_t>(floats[i])) << i;
      ASSERT_EQ(back[i], halves[i]);
    }
  }
}

TEST(Reduce, FloatsRoundTheSameAloneAndInARow) {
  std::mt19937 random(7);
  std::vector<float> floats(4096);
  for (float& f : floats) f = std::bit_cast<float>(static_cast<uint32_t>(random()));
  std::vector<uint16_t> row(floats.size());
  from_float(row.data(), floats.data(), 4096, DType::kF16);
  for (size_t i = 0; i < floats.size(); ++i) {
    if (std::isnan(floats[i])) continue;
    uint16_t alone = 0;
    from_float(&alone, &floats[i], 1, DType::kF16);
    ASSERT_EQ(alone, row[i]) << floats[i];
  }
}

// 1e8 + 1 - 1e8 is 0 in this order and 1 in another.
TEST(Reduce, AddsInRankOrder) {
  const float a = 1e8f, b = 1.0f, c = -1e8f;
  const void* parts[] = {&a, &b, &c};
  float sum = 5;
  sum_in_order(&sum, parts, 3, 1, DType::kF32);
  EXPECT_EQ(sum, 0.0f);
  const void* other_order[] = {&a, &c, &b};
  sum_in_order(&sum, other_order, 3, 1, DType::kF32);
  EXPECT_EQ(sum, 1.0f);
}

TEST(Reduce, HalvesRoundOnce) {
  // Each addition alone would round 2048 + 1 back to 2048.
  const std::vector<float> values = {2048.0f, 1.0f, 1.0f, 1.0f};
  std::vector<uint16_t> halves(4);
  from_float(halves.data(), values.data(), 4, DType::kF16);
  const void* parts[] = {&halves[0], &halves[1], &halves[2], &halves[3]};
  uint16_t sum = 0;
  sum_in_order(&sum, parts, 4, 1, DType::kF16);
  float result = 0;
  to_float(&result, &sum, 1, DType::kF16);
  EXPECT_EQ(result, 2052.0f);  // 2051 is a tie between 2050 and 2052, and 2052 is even
}

TEST(Reduce, OutMayBeAPart) {
  for (int num_parts = 1; num_parts <= 4; ++num_parts) {
    std::vector<std::vector<int64_t>> data(4, std::vector<int64_t>(3000));
    std::vector<const void*> parts;
    for (int p = 0; p < num_parts; ++p) {
      for (size_t i = 0; i < 3000; ++i)
        data[static_cast<size_t>(p)][i] = static_cast<int64_t>(i) * (p + 1);
      parts.push_back(data[static_cast<size_t>(p)].data());
    }
    std::vector<int64_t>& out = data[static_cast<size_t>(num_parts - 1)];
    sum_in_order(out.data(), parts.data(), num_parts, 3000, DType::kI64);
    const int64_t factor = num_parts * (num_parts + 1) / 2;
    for (size_t i = 0; i < 3000; ++i) ASSERT_EQ(out[i], static_cast<int64_t>(i) * factor);
  }
}

TEST(Reduce, IntegersWrapAround) {
  const int32_t a = std::numeric_limits<int32_t>::max(), b = 1;
  const void* parts[] = {&a, &b};
  int32_t sum = 0;
  sum_in_order(&sum, parts, 2, 1, DType::kI32);
  EXPECT_EQ(sum, std::numeric_limits<int32_t>::min());
}

TEST(Slices, CoverEverythingOnce) {
  for (int64_t count : {0, 1, 63, 64, 65, 1000, 2048, 100003}) {
    for (int n = 1; n <= 8; ++n) {
      int64_t next = 0;
      for (int r = 0; r < n; ++r) {
        const Slice slice = slice_of(count, r, n);
        ASSERT_EQ(slice.begin, next);
        ASSERT_GE(slice.count, 0);
        next += slice.count;
      }
      ASSERT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace tutti

#include "nn/rotary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace tutti {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

RopeConfig rope(RopeScalingType scaling, double factor = 4.0) {
  RopeConfig config;
  config.rotary_dim = 8;
  config.scaling = scaling;
  config.factor = factor;
  config.original_max_position = 64;
  return config;
}

std::vector<double> plain() { return rope_frequencies(rope(RopeScalingType::kNone), 64).inv_freq; }

TEST(Rope, Plain) { EXPECT_THAT(plain(), ElementsAre(1.0, DoubleNear(0.1, 1e-12), DoubleNear(0.01, 1e-12), DoubleNear(0.001, 1e-12))); }

TEST(Rope, LinearDividesAll) {
  const auto scaled = rope_frequencies(rope(RopeScalingType::kLinear), 64).inv_freq;
  for (size_t i = 0; i < scaled.size(); ++i) EXPECT_DOUBLE_EQ(scaled[i], plain()[i] / 4.0);
}

TEST(Rope, DynamicStartsAtTheTrainedLength) {
  EXPECT_EQ(rope_frequencies(rope(RopeScalingType::kDynamic), 64).inv_freq, plain());
  EXPECT_EQ(rope_frequencies(rope(RopeScalingType::kDynamic), 32).inv_freq, plain());
  // base * (4 * 128 / 64 - 3)^(8/6) at twice the length
  const auto longer = rope_frequencies(rope(RopeScalingType::kDynamic), 128).inv_freq;
  EXPECT_NEAR(longer[1], std::pow(10000.0 * std::pow(5.0, 8.0 / 6.0), -0.25), 1e-12);
}

TEST(Rope, Llama3KeepsShortWavesAndStretchesLongOnes) {
  RopeConfig config = rope(RopeScalingType::kLlama3, 8.0);
  config.low_freq_factor = 1.0;
  config.high_freq_factor = 4.0;
  const auto scaled = rope_frequencies(config, 64).inv_freq;
  EXPECT_DOUBLE_EQ(scaled[0], 1.0);                       // 10.2 turns in 64 positions
  const double keep = (64 * 0.1 / (2 * M_PI) - 1.0) / 3.0;  // 1.02 turns
  EXPECT_NEAR(scaled[1], (1 - keep) * 0.1 / 8.0 + keep * 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(scaled[3], plain()[3] / 8.0);
}

TEST(Rope, YarnBlendsAndScalesAttention) {
  const RopeFrequencies scaled = rope_frequencies(rope(RopeScalingType::kYarn), 64);
  EXPECT_NEAR(scaled.magnitude, 0.1 * std::log(4.0) + 1.0, 1e-12);
  // The correction range is pairs 0 to 2: pair 0 as trained, pair 1 half way, later ones interpolated.
  EXPECT_DOUBLE_EQ(scaled.inv_freq[0], 1.0);
  EXPECT_NEAR(scaled.inv_freq[1], 0.1 * (0.5 / 4.0 + 0.5), 1e-12);
  EXPECT_NEAR(scaled.inv_freq[2], plain()[2] / 4.0, 1e-12);
  RopeConfig deepseek = rope(RopeScalingType::kYarn, 40.0);
  deepseek.mscale = 1.0;
  deepseek.mscale_all_dim = 1.0;
  EXPECT_DOUBLE_EQ(rope_frequencies(deepseek, 64).magnitude, 1.0);
}

TEST(Rope, LongRopeChoosesByTheLongestSequence) {
  RopeConfig config = rope(RopeScalingType::kLongRope);
  config.short_factor = {1, 1, 1, 2};
  config.long_factor = {1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(rope_frequencies(config, 64).inv_freq[3], plain()[3] / 2);
  const RopeFrequencies longer = rope_frequencies(config, 65);
  EXPECT_DOUBLE_EQ(longer.inv_freq[3], plain()[3] / 8);
  EXPECT_NEAR(longer.magnitude, std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-12);
  config.long_factor.pop_back();
  EXPECT_THAT([&] { rope_frequencies(config, 65); }, testing::ThrowsMessage<ConfigError>(testing::HasSubstr("long_factor has 3")));
}

TEST(Rope, FactorsFromTheFileDivide) {
  RopeConfig config = rope(RopeScalingType::kNone);
  config.freq_factors = {1, 2, 4, 8};
  EXPECT_DOUBLE_EQ(rope_frequencies(config, 64).inv_freq[2], plain()[2] / 4);
  config.freq_factors = {1};
  EXPECT_THROW(rope_frequencies(config, 64), ConfigError);
}

}  // namespace
}  // namespace tutti

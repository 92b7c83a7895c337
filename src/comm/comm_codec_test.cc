#include "comm/comm_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "comm/comm_testing.h"
#include "tensor/half.h"

namespace tutti {
namespace {

std::vector<float> through(const std::vector<float>& in, CommDType type) {
  const auto count = static_cast<int64_t>(in.size());
  std::vector<CodecBlock> blocks(static_cast<size_t>(codec_blocks(count)));
  encode(blocks.data(), in.data(), count, type);
  std::vector<float> out(in.size());
  const CodecBlock* part = blocks.data();
  sum_encoded(out.data(), &part, 1, count, type);
  return out;
}

double rms(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
  std::vector<float> difference(found.size());
  for (size_t i = 0; i < found.size(); ++i) difference[i] = found[i] - expected[i];
  return rms(difference) / rms(expected);
}

std::vector<float> normal_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

TEST(CommCodec, WholeNumbersUpTo127AreExactInInt8) {
  std::vector<float> values;
  for (int i = -127; i <= 127; ++i) values.push_back(static_cast<float>(i));
  for (size_t begin = 0; begin < values.size(); begin += kCodecBlock)
    values[begin] = 127;  // the scale of a block is 1
  EXPECT_EQ(through(values, CommDType::kI8), values);
}

TEST(CommCodec, EveryFp8NumberIsExact) {
  std::vector<float> values;
  for (int code = 0; code < 256; ++code) {
    const float value = float8_e4m3_to_float(static_cast<uint8_t>(code));
    if (code % kCodecBlock == 0) values.push_back(448.0f);
    values.push_back(std::isnan(value) ? 0.0f : value);
  }
  values.resize(256 / kCodecBlock * kCodecBlock);
  for (size_t begin = 0; begin < values.size(); begin += kCodecBlock) values[begin] = 448.0f;
  EXPECT_EQ(through(values, CommDType::kF8), values);
}

TEST(CommCodec, ErrorOfNormalValues) {
  const std::vector<float> values = normal_values(100'003, 5);
  const double int8 = relative_error(through(values, CommDType::kI8), values);
  const double fp8 = relative_error(through(values, CommDType::kF8), values);
  RecordProperty("int8_relative_error", std::to_string(int8));
  RecordProperty("fp8_relative_error", std::to_string(fp8));
  EXPECT_LT(int8, 0.007);
  EXPECT_GT(int8, 0.004);  // it is not exact, and must not silently be off
  EXPECT_LT(fp8, 0.03);
  EXPECT_GT(fp8, 0.015);
}

TEST(CommCodec, ZeroTinyAndNotFinite) {
  for (const CommDType type : {CommDType::kI8, CommDType::kF8}) {
    std::vector<float> values(3 * kCodecBlock, 0.0f);
    values[5] = 1e-42f;                                   // block 0: nothing but a denormal
    values[70] = std::numeric_limits<float>::infinity();  // block 1
    values[140] = -2.0f;                                  // block 2
    const std::vector<float> out = through(values, type);
    EXPECT_EQ(out[5], 0.0f);
    EXPECT_TRUE(std::isnan(out[70]) && std::isnan(out[64]));
    EXPECT_EQ(out[140], -2.0f);
    values[70] = std::nanf("");
    EXPECT_TRUE(std::isnan(through(values, type)[127]));
  }
}

class EncodedAllReduce : public testing::TestWithParam<std::tuple<CommDType, int>> {};

// Small and large messages; every rank gets the same bits, close to the sum.
TEST_P(EncodedAllReduce, SameBitsAndSmallError) {
  const auto [type, size] = GetParam();
  for (const size_t count : {size_t{1}, size_t{2048}, size_t{100'001}}) {
    std::vector<std::vector<float>> parts, sums(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) parts.push_back(normal_values(count, static_cast<unsigned>(r)));
    std::vector<float> expected(count);
    for (const auto& part : parts) {
      for (size_t i = 0; i < count; ++i) expected[i] += part[i];
    }
    CommOptions options;
    options.transport = TransportKind::kTcp;
    options.comm_dtype = type;
    const auto errors = run_rank_threads(size, options, [&](Communicator& comm) {
      const auto rank = static_cast<size_t>(comm.rank());
      sums[rank] = parts[rank];
      comm.all_reduce(sums[rank].data(), static_cast<int64_t>(count), DType::kF32);
      int32_t whole = 1 << 24;  // whole numbers are never encoded
      comm.all_reduce(&whole, 1, DType::kI32);
      EXPECT_EQ(whole, comm.size() << 24);
    });
    EXPECT_THAT(errors, testing::Each(testing::IsEmpty()));
    EXPECT_THAT(sums, testing::Each(sums[0]));
    EXPECT_LT(relative_error(sums[0], expected), type == CommDType::kI8 ? 0.012 : 0.05) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, EncodedAllReduce,
                         testing::Combine(testing::Values(CommDType::kI8, CommDType::kF8),
                                          testing::Values(2, 3)));

TEST(CommCodec, Names) {
  EXPECT_EQ(comm_dtype_from_name("int8"), CommDType::kI8);
  EXPECT_EQ(comm_dtype_from_name("fp8"), CommDType::kF8);
  EXPECT_EQ(comm_dtype_from_name("auto"), CommDType::kFull);
  EXPECT_EQ(comm_dtype_from_name("int4"), std::nullopt);
}

}  // namespace
}  // namespace tutti

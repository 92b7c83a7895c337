// The quantised types against the reference's values, bit for bit
// (tests/golden/quants/generate.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tensor/dequantize.h"
#include "tensor/quantize.h"
#include "weights/checkpoint.h"

namespace tutti {
namespace {

constexpr DType kBlockTypes[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0,
                                 DType::kQ5_1, DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,
                                 DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

class QuantsTest : public ::testing::TestWithParam<DType> {
 protected:
  static void SetUpTestSuite() {
    golden_ = Checkpoint::open("tests/golden/quants/quants.safetensors");
  }
  static void TearDownTestSuite() { golden_.reset(); }

  const Tensor* find(const std::string& what) const {
    return golden_->find(std::string(dtype_name(GetParam())) + "." + what);
  }

  static std::unique_ptr<Checkpoint> golden_;
};
std::unique_ptr<Checkpoint> QuantsTest::golden_;

TEST_P(QuantsTest, DequantizesToTheSameBits) {
  const Tensor* blocks = find("blocks");
  const Tensor* values = find("values");
  ASSERT_TRUE(blocks != nullptr && values != nullptr);
  std::vector<float> found(static_cast<size_t>(values->numel()));
  dequantize_row(GetParam(), blocks->data(), values->numel(), found.data());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(found[i]),
              std::bit_cast<uint32_t>(values->data_as<float>()[i]))
        << "element " << i << ": " << found[i] << ", expected " << values->data_as<float>()[i];
  }
}

TEST_P(QuantsTest, QuantizesToTheSameBytes) {
  const Tensor* expected = find("quantized");
  if (expected == nullptr) {
    EXPECT_GE(GetParam(), DType::kQ2_K);  // the reference reads those, but writes none
    return;
  }
  const Tensor* source = golden_->find("source");
  ASSERT_NE(source, nullptr);
  std::vector<uint8_t> found(expected->bytes());
  quantize_row(source->data_as<float>(), source->numel(), GetParam(), found.data());
  const int block_bytes = dtype_info(GetParam()).block_bytes;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i], expected->data_as<uint8_t>()[i])
        << "row " << i / block_bytes << ", byte " << i % block_bytes;
  }
}

// Of normally distributed values, relative to their standard deviation.
double largest_rms_error(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return 0.008;
    case DType::kQ6_K:
      return 0.025;
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return 0.06;
    case DType::kQ3_K:
      return 0.22;
    case DType::kQ2_K:
      return 0.40;
    default:
      return 0.12;
  }
}

TEST_P(QuantsTest, RoundTripErrorIsThatOfItsBits) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> source(16 * 256);
  for (float& x : source) x = normal(random);
  std::vector<uint8_t> row(dtype_bytes(GetParam(), static_cast<int64_t>(source.size())));
  std::vector<float> back(source.size());
  quantize_row(source.data(), static_cast<int64_t>(source.size()), GetParam(), row.data());
  dequantize_row(GetParam(), row.data(), static_cast<int64_t>(back.size()), back.data());
  double sum = 0;
  for (size_t i = 0; i < back.size(); ++i) sum += std::pow(back[i] - source[i], 2);
  const double rms = std::sqrt(sum / static_cast<double>(back.size()));
  RecordProperty("rms", std::to_string(rms));
  EXPECT_LT(rms, largest_rms_error(GetParam()));
  EXPECT_GT(rms, largest_rms_error(GetParam()) / 4);  // the bound above is not an empty one
}

TEST_P(QuantsTest, ZerosStayZeroAndOddInputsDoNoHarm) {
  std::vector<float> source(256, 0.0F);
  std::vector<uint8_t> row(dtype_bytes(GetParam(), 256));
  quantize_row(source.data(), 256, GetParam(), row.data());
  std::vector<float> back(256, 1.0F);
  dequantize_row(GetParam(), row.data(), 256, back.data());
  for (float x : back) EXPECT_EQ(x, 0.0F);
  source = std::vector<float>(256, 1e-42F);  // 1 / d overflows
  source[3] = std::nanf("");
  source[40] = std::numeric_limits<float>::infinity();
  quantize_row(source.data(), 256, GetParam(), row.data());
}

INSTANTIATE_TEST_SUITE_P(AllTypes, QuantsTest, ::testing::ValuesIn(kBlockTypes),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace tutti

// Ops against float64 on fresh random data. The seed is printed; outputs are poisoned with NaN first. All levels of
// this processor are tested.
#include "ops/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.h"
#include "ops/cpu/half.h"
#include "ops/cpu/isa.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace tutti {
namespace {

class OpsTest : public testing::TestWithParam<int> {
 protected:
  OpsTest() : pool_(2), arena_(size_t{64} << 20, Device::cpu()) {
    ctx_ = {.pool = &pool_, .arena = &arena_, .kernels = &cpu::available_tables()[static_cast<size_t>(GetParam())]};
    seed_ = std::random_device{}();
    random_.seed(seed_);
    RecordProperty("seed", std::to_string(seed_));
  }
  void TearDown() override {
    if (HasFailure()) std::printf("seed %u, level %s\n", seed_, std::string(ctx_.kernels->name).c_str());
  }

  float normal() { return std::normal_distribution<float>()(random_); }
  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  Tensor normals(std::initializer_list<int64_t> shape) {
    Tensor t = Tensor::empty(shape, DType::kF32);
    for (int64_t i = 0; i < t.numel(); ++i) t.data_as<float>()[i] = normal();
    return t;
  }
  static Tensor poisoned(std::initializer_list<int64_t> shape) {
    Tensor t = Tensor::empty(shape, DType::kF32);
    for (int64_t i = 0; i < t.numel(); ++i) t.data_as<float>()[i] = NAN;
    return t;
  }

  ThreadPool pool_;
  Arena arena_;
  Context ctx_;
  unsigned seed_;
  std::mt19937 random_;
};

TEST_P(OpsTest, NormOfRowsAndOfHeads) {
  const Tensor x = normals({3, 5, 70}), weight = normals({70}), out = poisoned({3, 5, 70});
  ops::rms_norm(ctx_, x, weight, 1e-5, out);
  for (int64_t row = 0; row < 15; ++row) {
    const float* p = x.data_as<float>() + row * 70;
    double squares = 0;
    for (int i = 0; i < 70; ++i) squares += double{p[i]} * p[i];
    for (int i = 0; i < 70; ++i) {
      const double expected = p[i] / std::sqrt(squares / 70 + 1e-5) * weight.data_as<float>()[i];
      EXPECT_NEAR(out.data_as<float>()[row * 70 + i], expected, 2e-6 * (1 + std::abs(expected)));
    }
  }
}

TEST_P(OpsTest, AddThenNormEqualsBoth) {
  const Tensor residual = normals({4, 576}), delta = normals({4, 576}), weight = normals({576}), out = poisoned({4, 576});
  Tensor sum = Tensor::empty({4, 576}, DType::kF32);
  for (int64_t i = 0; i < sum.numel(); ++i) sum.data_as<float>()[i] = residual.data_as<float>()[i] + delta.data_as<float>()[i];
  const Tensor expected = poisoned({4, 576});
  ops::rms_norm(ctx_, sum, weight, 1e-6, expected);
  ops::add_rms_norm(ctx_, residual, delta, weight, 1e-6, out);
  EXPECT_EQ(std::memcmp(residual.data(), sum.data(), sum.bytes()), 0);
  EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.bytes()), 0);
}

TEST_P(OpsTest, RopeTurnsPairs) {
  for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
    const int64_t tokens = 5, heads = 3, head_dim = 80, half = 36;
    const Tensor x = normals({tokens, heads, head_dim}), table = normals({50, 2, half});
    Tensor positions = Tensor::empty({tokens}, DType::kI32);
    for (int t = 0; t < tokens; ++t) positions.data_as<int32_t>()[t] = static_cast<int32_t>(uniform(0, 49));
    std::vector<float> before(x.data_as<float>(), x.data_as<float>() + x.numel());
    ops::rope(ctx_, x, positions, table, layout);
    for (int64_t t = 0; t < tokens; ++t) {
      const float* cos = table.row<float>(positions.data_as<int32_t>()[t]);
      for (int64_t h = 0; h < heads; ++h) {
        const float* was = before.data() + (t * heads + h) * head_dim;
        const float* is = x.data_as<float>() + (t * heads + h) * head_dim;
        for (int64_t i = 0; i < half; ++i) {
          const int64_t a = layout == RopeLayout::kHalf ? i : 2 * i, b = layout == RopeLayout::kHalf ? half + i : 2 * i + 1;
          EXPECT_NEAR(is[a], double{was[a]} * cos[i] - double{was[b]} * cos[half + i], 2e-6 * 8);
          EXPECT_NEAR(is[b], double{was[b]} * cos[i] + double{was[a]} * cos[half + i], 2e-6 * 8);
        }
        for (int64_t i = 2 * half; i < head_dim; ++i) EXPECT_EQ(is[i], was[i]);
      }
    }
  }
}

TEST_P(OpsTest, AddAndGather) {
  const Tensor x = normals({6, 33}), y = normals({6, 33});
  std::vector<float> before(x.data_as<float>(), x.data_as<float>() + x.numel());
  ops::add(ctx_, x, y);
  for (int64_t i = 0; i < x.numel(); ++i) EXPECT_EQ(x.data_as<float>()[i], before[static_cast<size_t>(i)] + y.data_as<float>()[i]);
  Tensor rows = Tensor::empty({3}, DType::kI32);
  rows.data_as<int32_t>()[0] = 5, rows.data_as<int32_t>()[1] = 0, rows.data_as<int32_t>()[2] = 5;
  const Tensor out = poisoned({3, 33});
  ops::gather_rows(ctx_, x, rows, out);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(std::memcmp(out.row<float>(i), x.row<float>(rows.data_as<int32_t>()[i]), 33 * 4), 0);
}

// A weight [rows, k] of any type, of random bytes with scales of a sensible size, and its values.
struct Weight {
  Tensor tensor;
  std::vector<float> values;
};

// Where a block's half-precision numbers are, -1 for none.
std::pair<int, int> half_offsets(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0: case DType::kQ4_0: case DType::kQ5_0: case DType::kIQ4_NL: case DType::kIQ4_XS: return {0, -1};
    case DType::kQ4_1: case DType::kQ5_1: case DType::kQ4_K: case DType::kQ5_K: return {0, 2};
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108, -1};
    case DType::kQ6_K: return {208, -1};
    default: return {-1, -1};
  }
}

Weight make_weight(std::mt19937& random, DType dtype, int64_t rows, int64_t k) {
  Weight w{Tensor::empty({rows, k}, dtype), std::vector<float>(static_cast<size_t>(rows * k))};
  auto* bytes = w.tensor.data_as<uint8_t>();
  std::normal_distribution<float> normal(0, 0.1f);
  const auto put_half = [&](uint8_t* p) {  // +- 0.005 .. 0.03, exact
    const auto h = static_cast<uint16_t>(0x1d00 + random() % 0x0a00 + (random() % 2 << 15));
    std::memcpy(p, &h, 2);
  };
  const DTypeInfo& info = dtype_info(dtype);
  const auto [d, m] = half_offsets(dtype);
  for (int64_t b = 0; b < rows * k / info.block_size; ++b) {
    uint8_t* p = bytes + b * info.block_bytes;
    const float f = normal(random);
    const uint16_t bf16 = cpu::float_to_bf16(f);
    for (int i = 0; i < info.block_bytes; ++i) p[i] = static_cast<uint8_t>(random());
    if (dtype == DType::kF32) std::memcpy(p, &f, 4);
    if (dtype == DType::kBF16) std::memcpy(p, &bf16, 2);
    if (dtype == DType::kF16) put_half(p);
    if (d >= 0) put_half(p + d);
    if (m >= 0) put_half(p + m);
  }
  for (int64_t r = 0; r < rows; ++r) dequantize_row(dtype, w.tensor.row<uint8_t>(r), k, w.values.data() + r * k);
  return w;
}

constexpr DType kWeightTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                                  DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ2_K, DType::kQ3_K,
                                  DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

int64_t whole_blocks(DType dtype, int64_t k) {
  const int64_t block = dtype_info(dtype).block_size;
  return (k + block - 1) / block * block;
}

// x as the kernels see it: for quantised weights rounded to int8 with a scale for each 32.
// For BF16 weights, at some levels, to bfloat16.
std::vector<double> seen_activations(const Context& ctx, const Tensor& x, DType weight) {
  std::vector<double> out(x.data_as<float>(), x.data_as<float>() + x.numel());
  if (weight == DType::kBF16 && ctx.kernels->level->pair_tile != nullptr) {
    for (double& v : out) v = cpu::bf16_to_float(cpu::float_to_bf16(static_cast<float>(v)));
  }
  if (!is_quantized(weight)) return out;
  for (size_t b = 0; b < out.size(); b += 32) {
    float max = 0;
    for (size_t i = b; i < b + 32; ++i) max = std::max(max, std::abs(static_cast<float>(out[i])));
    const float inverse = 127.0f / max;
    for (size_t i = b; i < b + 32; ++i) out[i] = double{max / 127.0f} * std::nearbyint(static_cast<float>(out[i]) * inverse);
  }
  return out;
}

TEST_P(OpsTest, LinearOfEveryTypeAndRaggedShapes) {
  for (const DType dtype : kWeightTypes) {
    for (const auto& [rows, out_features, min_k] : {std::array<int64_t, 3>{1, 32, 32}, {1, 70, 576}, {3, 33, 64}, {5, 96, 1056},
                                                {17, 40, 96}, {50, 64, 544}, {251, 31, 64}}) {
      const int64_t k = whole_blocks(dtype, min_k);
      const Weight w = make_weight(random_, dtype, out_features, k);
      const Tensor x = normals({rows, k}), bias = normals({out_features}), out = poisoned({rows, out_features});
      const PackedWeight packed = ops::pack_weight(ctx_, std::span(&w.tensor, 1));
      ops::linear(ctx_, x, packed, bias, out);
      const auto seen = seen_activations(ctx_, x, dtype);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t n = 0; n < out_features; ++n) {
          double expected = bias.data_as<float>()[n], magnitude = std::abs(expected);
          for (int64_t i = 0; i < k; ++i) {
            const double term = seen[static_cast<size_t>(r * k + i)] * double{w.values[static_cast<size_t>(n * k + i)]};
            expected += term, magnitude += std::abs(term);
          }
          ASSERT_NEAR(out.row<float>(r)[n], expected, 1e-6 * magnitude + 1e-6)
              << dtype_name(dtype) << " [" << rows << ", " << k << "] -> " << out_features << " at " << r << ", " << n;
        }
      }
    }
  }
}

// Blocks with an element far above their row are seen with a second code for what the first one left, whatever rows come
// along; each row has the bits that it has alone.
TEST_P(OpsTest, OutliersAreRoundedTwice) {
  for (const auto& [rows, k] : {std::array<int64_t, 2>{1, 576}, {7, 64}, {16, 320}, {33, 576}, {100, 1056}}) {
    const int64_t n = 70;
    const Weight w = make_weight(random_, DType::kQ8_0, n, k);
    const PackedWeight packed = ops::pack_weight(ctx_, std::span(&w.tensor, 1));
    ops::Input x = normals({rows, k});
    x.keep_outliers = true;
    for (int64_t i = uniform(0, 40); i < rows * k; i += uniform(1, 300)) x.x.data_as<float>()[i] *= 30.0f;
    auto seen = seen_activations(ctx_, x.x, DType::kQ8_0);
    int64_t far = 0;
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t i = 0; i < k; ++i) squares += seen[static_cast<size_t>(r * k + i)] * seen[static_cast<size_t>(r * k + i)];
      for (int64_t b = 0; b < k; b += 32) {
        const float* values = x.x.row<float>(r) + b;
        double* block = seen.data() + r * k + b;
        float largest = 0, left = 0, errors[32];
        for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[i]));
        if (largest * largest <= 12.25 * squares / static_cast<double>(k)) continue;
        ++far;
        for (int i = 0; i < 32; ++i) errors[i] = values[i] - static_cast<float>(block[i]), left = std::max(left, std::abs(errors[i]));
        for (int i = 0; i < 32; ++i) block[i] += double{left / 127.0f} * std::nearbyint(errors[i] * (127.0f / left));
      }
    }
    EXPECT_GT(far, 0);
    const Tensor out = poisoned({rows, n}), alone = poisoned({1, n});
    ops::linear(ctx_, x, packed, Tensor(), out);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < n; ++j) {
        double expected = 0, magnitude = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double term = seen[static_cast<size_t>(r * k + i)] * double{w.values[static_cast<size_t>(j * k + i)]};
          expected += term, magnitude += std::abs(term);
        }
        ASSERT_NEAR(out.row<float>(r)[j], expected, 1e-6 * magnitude + 1e-6) << "[" << rows << ", " << k << "] at " << r << ", " << j;
      }
      ops::Input row = x.x.slice(0, r, 1);
      row.keep_outliers = true;
      ops::linear(ctx_, row, packed, Tensor(), alone);
      ASSERT_EQ(std::memcmp(alone.data(), out.row<float>(r), alone.bytes()), 0) << "row " << r << " of " << rows;
    }
  }
}

// The largest codes against the largest activations: sums that are kept in narrow integers on the way must hold them.
TEST_P(OpsTest, LargestCodesMeetLargestActivations) {
  for (const DType dtype : kWeightTypes) {
    if (!is_quantized(dtype)) continue;
    for (const int fill : {0xff, 0x80, 0x7f, 0x00}) {
      const int64_t k = 512, n = 34, rows = 15;
      Weight w = make_weight(random_, dtype, n, k);
      const DTypeInfo& info = dtype_info(dtype);
      const auto [d, m] = half_offsets(dtype);
      for (int64_t b = 0; b < n * k / info.block_size; ++b) {
        uint8_t* p = w.tensor.data_as<uint8_t>() + b * info.block_bytes;
        for (int i = 0; i < info.block_bytes; ++i) {
          const bool scale = (d >= 0 && i / 2 == d / 2) || (m >= 0 && i / 2 == m / 2);
          if (!scale) p[i] = static_cast<uint8_t>(fill);
        }
      }
      for (int64_t r = 0; r < n; ++r) dequantize_row(dtype, w.tensor.row<uint8_t>(r), k, w.values.data() + r * k);
      const Tensor x = poisoned({rows, k}), out = poisoned({rows, n});
      for (int64_t r = 0; r < rows; ++r) std::fill_n(x.row<float>(r), k, r % 2 == 0 ? 1.0f : -1.0f);
      const PackedWeight packed = ops::pack_weight(ctx_, std::span(&w.tensor, 1));
      ops::linear(ctx_, x, packed, Tensor(), out);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < n; ++j) {
          double expected = 0, magnitude = 0;
          for (int64_t i = 0; i < k; ++i) {
            const double value = double{w.values[static_cast<size_t>(j * k + i)]};
            expected += x.row<float>(r)[i] * value, magnitude += std::abs(value);
          }
          ASSERT_NEAR(out.row<float>(r)[j], expected, 1e-6 * magnitude + 1e-6) << dtype_name(dtype) << " of bytes " << fill;
        }
      }
    }
  }
}

TEST_P(OpsTest, PiecesSlicesAndGateUp) {
  for (const DType dtype : kWeightTypes) {
    // Rows 7..47 and 60..100 and some columns in the middle: strided views of the "file".
    const int64_t block = dtype_info(dtype).block_size, from = 2 * block, k = whole_blocks(dtype, 96), all = from + k + block;
    const Weight whole = make_weight(random_, dtype, 120, all);
    const Tensor columns = whole.tensor.slice(1, from, k);
    const Tensor pieces[] = {columns.slice(0, 7, 40), columns.slice(0, 60, 40)};
    const PackedWeight w = ops::pack_weight(ctx_, pieces);
    EXPECT_EQ(w.out_features, 80);
    EXPECT_EQ(w.in_features, k);
    const Tensor x = normals({9, k}), both = poisoned({9, 80}), fused = poisoned({9, 40});
    ops::linear(ctx_, x, w, Tensor(), both);
    ops::gate_up_silu(ctx_, x, w, fused);
    const auto seen = seen_activations(ctx_, x, dtype);
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t n = 0; n < 80; ++n) {
        double expected = 0, magnitude = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double term = seen[static_cast<size_t>(r * k + i)] *
                              double{whole.values[static_cast<size_t>((n < 40 ? 7 + n : 20 + n) * all + from + i)]};
          expected += term, magnitude += std::abs(term);
        }
        ASSERT_NEAR(both.row<float>(r)[n], expected, 1e-6 * magnitude + 1e-6) << dtype_name(dtype);
      }
      for (int64_t n = 0; n < 40; ++n) {
        const double g = both.row<float>(r)[n], u = both.row<float>(r)[40 + n];
        const double expected = g / (1 + std::exp(-g)) * u;
        ASSERT_NEAR(fused.row<float>(r)[n], expected, 1e-6 * (1 + std::abs(expected)));
      }
    }
  }
}

// Few rows may take two panels in turn, within a piece and over both of a gate and up: each row has the bits that it has
// among many, which take panels one by one.
TEST_P(OpsTest, FewRowsHaveTheBitsOfMany) {
  for (const DType dtype : kWeightTypes) {
    const int64_t k = whole_blocks(dtype, 543), all = 17;
    const Weight a = make_weight(random_, dtype, 101, k), b = make_weight(random_, dtype, 101, k);
    const Tensor pieces[] = {a.tensor, b.tensor};
    const PackedWeight w = ops::pack_weight(ctx_, pieces);
    const Tensor x = normals({all, k}), bias = normals({202});
    const Tensor many = poisoned({all, 202}), fused_many = poisoned({all, 101});
    ops::linear(ctx_, x, w, bias, many);
    ops::gate_up_silu(ctx_, x, w, fused_many);
    for (const int64_t rows : {1, 2, 3, 4, 5}) {
      const Tensor few = poisoned({rows, 202}), fused = poisoned({rows, 101});
      ops::linear(ctx_, x.slice(0, 6, rows), w, bias, few);
      ops::gate_up_silu(ctx_, x.slice(0, 6, rows), w, fused);
      EXPECT_EQ(std::memcmp(few.data(), many.row<float>(6), few.bytes()), 0) << dtype_name(dtype) << " " << rows;
      EXPECT_EQ(std::memcmp(fused.data(), fused_many.row<float>(6), fused.bytes()), 0) << dtype_name(dtype) << " " << rows;
    }
  }
}

// Activations that crossed between ranks as codes give the bits of those that did not, also for rows of zeros, of tiny
// values and with several largest elements.
TEST_P(OpsTest, ActivationCodesKeepTheProduct) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    const int64_t k = 32 * uniform(1, 20), n = uniform(1, 70), rows = 40;
    const Tensor x = normals({rows, k}), decoded = poisoned({rows, k});
    float* p = x.data_as<float>();
    for (int64_t i = 0; i < k; ++i) {
      p[i] = 0.0f;
      p[k + i] *= 1e-36f;
      p[2 * k + i] = i % 3 == 0 ? 7.25f : -7.25f;
    }
    for (int64_t i = 0; i < x.numel(); ++i) p[i] *= std::exp2(static_cast<float>(uniform(-20, 20)));
    const Tensor codes = Tensor::empty({rows, ops::activation_code_bytes(k)}, DType::kU8);
    ops::encode_activations(ctx_, x, codes);
    ops::decode_activations(ctx_, codes, decoded);
    const Tensor w = Tensor::empty({n, k}, dtype);
    const Tensor values = normals({n, k});
    for (int64_t r = 0; r < n; ++r) quantize_row(values.row<float>(r), k, dtype, w.row<std::byte>(r));
    const PackedWeight packed = ops::pack_weight(ctx_, {{w}});
    const Tensor direct = poisoned({rows, n}), crossed = poisoned({rows, n});
    ops::linear(ctx_, x, packed, Tensor(), direct);
    ops::linear(ctx_, decoded, packed, Tensor(), crossed);
    EXPECT_EQ(std::memcmp(direct.data(), crossed.data(), direct.bytes()), 0) << dtype_name(dtype) << " k " << k;
  }
}

TEST_P(OpsTest, EmbeddingReadsThePackedTable) {
  for (const DType dtype : kWeightTypes) {
    const int64_t k = whole_blocks(dtype, 64);
    const Weight w = make_weight(random_, dtype, 70, k);
    const PackedWeight table = ops::pack_weight(ctx_, std::span(&w.tensor, 1));
    Tensor ids = Tensor::empty({5}, DType::kI32);
    const int32_t values[] = {1000, 1069, 999, 1070, 1033};
    std::memcpy(ids.data(), values, sizeof values);
    const Tensor out = poisoned({5, k});
    ops::embedding(ctx_, {ids, Tensor()}, table, 1000, out);
    for (int t = 0; t < 5; ++t) {
      const bool inside = values[t] >= 1000 && values[t] < 1070;
      for (int64_t i = 0; i < k; ++i) {
        const float expected = inside ? w.values[static_cast<size_t>((values[t] - 1000) * k + i)] : 0;
        EXPECT_FLOAT_EQ(out.row<float>(t)[i], expected) << dtype_name(dtype);
      }
    }
  }
}

TEST_P(OpsTest, NotANumberStaysNotANumber) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_1}) {
    const Weight w = make_weight(random_, dtype, 40, 64);
    const PackedWeight packed = ops::pack_weight(ctx_, std::span(&w.tensor, 1));
    const Tensor x = normals({3, 64}), out = poisoned({3, 40});
    x.row<float>(1)[uniform(0, 63)] = NAN;
    ops::linear(ctx_, x, packed, Tensor(), out);
    for (int64_t n = 0; n < 40; ++n) {
      EXPECT_FALSE(std::isnan(out.row<float>(0)[n]) || std::isnan(out.row<float>(2)[n])) << dtype_name(dtype);
      EXPECT_TRUE(std::isnan(out.row<float>(1)[n])) << dtype_name(dtype);
    }
  }
}

TEST_P(OpsTest, ZerosAndTinyActivations) {
  for (const DType dtype : kWeightTypes) {
    const int64_t k = whole_blocks(dtype, 64);
    const Weight w = make_weight(random_, dtype, 40, k);
    const PackedWeight packed = ops::pack_weight(ctx_, std::span(&w.tensor, 1));
    const Tensor x = Tensor::zeros({2, k}, DType::kF32), out = poisoned({2, 40});
    for (int64_t i = 0; i < k; ++i) x.row<float>(1)[i] = 1e-38f;
    ops::linear(ctx_, x, packed, Tensor(), out);
    for (int64_t n = 0; n < 40; ++n) {
      EXPECT_EQ(out.row<float>(0)[n], 0) << dtype_name(dtype);
      EXPECT_NEAR(out.row<float>(1)[n], 0, 1e-34) << dtype_name(dtype);
    }
  }
}

TEST_P(OpsTest, UnknownTypesAndRaggedBlocksAreNamed) {
  const Tensor odd = Tensor::zeros({4, 4}, DType::kI64);
  EXPECT_THROW(ops::pack_weight(ctx_, std::span(&odd, 1)), ConfigError);
}

TEST(Levels, AreFoundByNameAndMissingOnesAreNamed) {
  for (const KernelTable& table : cpu::available_tables()) EXPECT_EQ(&cpu::kernel_table_of_level(table.level->name), &table);
  try {
    cpu::kernel_table_of_level("mmx");
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("level mmx: this processor and build have portable"));
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, OpsTest, testing::Range(0, static_cast<int>(cpu::available_tables().size())),
                         [](const auto& info) {
                           return std::string(cpu::available_tables()[static_cast<size_t>(info.param)].level->name);
                         });

}  // namespace
}  // namespace tutti

// Products with FP8 weights against float64: every kind of scale, tokens rounded to FP8 and not.
#include <span>

#include "base/error.h"
#include "tests/conformance/ops/product.h"

namespace tutti {
namespace {

enum class Scales { kRows, kOne, kBlocks };

// Pieces of E4M3 with scales, and their exact values.
struct Fp8Weight {
  std::vector<Tensor> pieces, scales;
  Values all;
};

class Fp8Conformance : public ProductConformance {
 protected:
  void SetUp() override {
    if (!on_gpu()) GTEST_SKIP() << "GPUs only";
    ProductConformance::SetUp();
  }

  Fp8Weight weight(std::initializer_list<int64_t> piece_rows, int64_t k, Scales kind) {
    Fp8Weight w;
    const int64_t blocks = (k + 127) / 128;
    for (const int64_t rows : piece_rows) {
      const Values codes = host_normals({rows, k}, DType::kF8E4M3, 40.0);
      const double deviation = 0.02 / std::sqrt(static_cast<double>(k));
      Values scale;
      if (kind == Scales::kRows) scale = host_normals({rows}, DType::kF32, deviation);
      else if (kind == Scales::kOne) scale = host_normals({1}, DType::kF32, deviation);
      else scale = host_normals({(rows + 127) / 128, blocks}, DType::kF32, deviation);
      w.pieces.push_back(codes.tensor);
      w.scales.push_back(scale.tensor);
      for (int64_t i = 0; i < rows * k; ++i) {
        const int64_t row = i / k, at = kind == Scales::kRows ? row : kind == Scales::kOne ? 0 : row / 128 * blocks + i % k / 128;
        w.all.values.push_back(codes.values[static_cast<size_t>(i)] * scale.values[static_cast<size_t>(at)]);
      }
    }
    return w;
  }

  // Hopper's FP8 units align the products of one instruction to about 14 bits and cut off the rest, whatever k is.
  double of_fp8_sum(int64_t k) const { return 0x1p-12 + of_sum(k); }

  void run(Scales kind, bool tokens_are_rounded) {
    for (const ProductShape& s : {ProductShape{64, 48}, {592, 208}, {64, 34000}, {2064, 400}, {4096, 1024}, {14336, 144}}) {
      const auto k = static_cast<size_t>(s.k), n = static_cast<size_t>(s.n);
      // By blocks, the first piece of two has whole ones.
      const int64_t first = kind == Scales::kBlocks ? (s.n + 127) / 128 * 128 : s.n;
      const Fp8Weight w = weight({s.n}, s.k, kind), both = weight({first, first}, s.k, kind);
      const PackedWeight one = ops::pack_weight_fp8(ctx_, w.pieces, w.scales), two = ops::pack_weight_fp8(ctx_, both.pieces, both.scales);
      const Values norm = normals({s.k}, DType::kF32);
      for (const int64_t tokens : kTokens) {
        // From 3 tokens on the faster kernel is taken, which may round tokens.
        const double rounding = tokens_are_rounded && tokens > 2 ? 0x1p-4 : 0.0, sum = of_fp8_sum(s.k);
        const std::string name = shape(tokens, s.k, s.n);
        const Values x = normals({tokens, s.k}), residual = normals({tokens, s.n});
        const Values kept = {clone(residual.tensor), residual.values};
        const Values y{Tensor(), normed(x, norm, 1e-5)};
        const Tensor out = poisoned({tokens, s.n}), logits = poisoned({tokens, s.n}, DType::kF32), gated = poisoned({tokens, first});
        ops::linear(ctx_, x.tensor, one, Tensor(), out);
        ops::linear(ctx_, {x.tensor, norm.tensor, 1e-5}, one, Tensor(), logits);
        ops::linear_add(ctx_, x.tensor, one, Tensor(), residual.tensor);
        ops::gate_up_silu(ctx_, {x.tensor, norm.tensor, 1e-5}, two, gated);
        const auto product = [&](size_t row, size_t column) { return dot(x, row, w.all, column, k); };
        // Weights that become 16-bit are rounded, as a norm's result is.
        expect_elements(read(out), product, n, tolerance(2.0) + sum + rounding, name);
        expect_elements(read(logits), [&](size_t row, size_t column) { return dot(y, row, w.all, column, k); }, n,
                        tolerance(2.0) + sum + rounding, name + ", normed, F32 out");
        expect_elements(read(residual.tensor), [&](size_t row, size_t column) { return kept.values[row * n + column] + product(row, column); }, n,
                        tolerance(2.5) + sum + rounding, name + ", added");
        const auto columns = static_cast<size_t>(first);
        expect_elements(
            read(gated),
            [&](size_t row, size_t column) {
              const double g = dot(y, row, both.all, column, k);
              return g / (1 + std::exp(-g)) * dot(y, row, both.all, column + columns, k);
            },
            columns, tolerance(4.0) + 2 * sum + 2 * rounding, name + ", gated");
      }
    }
  }
};

TEST_P(Fp8Conformance, ScaleOfEachRow) { run(Scales::kRows, true); }
TEST_P(Fp8Conformance, OneScale) { run(Scales::kOne, true); }
TEST_P(Fp8Conformance, ScaleOfEachBlock) { run(Scales::kBlocks, true); }

// As on GPUs without FP8 products.
TEST_P(Fp8Conformance, WeightOnly) {
  use({.fp8_weight_only = true});
  for (const Scales kind : {Scales::kRows, Scales::kBlocks}) run(kind, false);
}

// Tokens that E4M3 holds exactly lose nothing on the way.
TEST_P(Fp8Conformance, ExactTokens) {
  const int64_t k = 2064, n = 400;
  const Fp8Weight w = weight({n}, k, Scales::kRows);
  const PackedWeight packed = ops::pack_weight_fp8(ctx_, w.pieces, w.scales);
  for (const int64_t tokens : kTokens) {
    Values x{Tensor::empty({tokens, k}, activations()), host_normals({tokens, k}, DType::kF8E4M3, 40.0).values};
    // With 448 as the largest element, the scale is 1.
    for (int64_t t = 0; t < tokens; ++t) x.values[static_cast<size_t>(t * k + uniform(0, k - 1))] = 448.0;
    x = on_device(x);
    const Tensor out = poisoned({tokens, n}, DType::kF32);
    ops::linear(ctx_, x.tensor, packed, Tensor(), out);
    expect_elements(read(out), [&](size_t row, size_t column) { return dot(x, row, w.all, column, static_cast<size_t>(k)); },
                    static_cast<size_t>(n), 1e-6 + of_fp8_sum(k), shape(tokens, k, n));
  }
}

TEST_P(Fp8Conformance, FromWiderWeights) {
  const int64_t k = 512, n = 96;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const Values w = host_normals({n, k}, dtype, 0.04);
    const PackedWeight packed = ops::pack_weight_fp8(ctx_, std::vector<Tensor>{w.tensor}, {});
    for (const int64_t tokens : {5, 12}) {
      const Values x = normals({tokens, k});
      const Tensor out = poisoned({tokens, n});
      ops::linear(ctx_, x.tensor, packed, Tensor(), out);
      expect_elements(read(out), [&](size_t row, size_t column) { return dot(x, row, w, column, static_cast<size_t>(k)); },
                      static_cast<size_t>(n), 2 * 0x1p-4, std::string(dtype_name(dtype)));
    }
  }
}

TEST_P(Fp8Conformance, Refusals) {
  EXPECT_THROW(ops::pack_weight_fp8(ctx_, std::vector<Tensor>{host_normals({16, 24}, DType::kF32).tensor}, {}), ConfigError);
  const Fp8Weight uneven = weight({144, 128}, 256, Scales::kBlocks);
  EXPECT_THROW(ops::pack_weight_fp8(ctx_, uneven.pieces, uneven.scales), ConfigError);
}

INSTANTIATE_TEST_SUITE_P(Backends, Fp8Conformance, testing::ValuesIn(backends()), backend_name);

}  // namespace
}  // namespace tutti

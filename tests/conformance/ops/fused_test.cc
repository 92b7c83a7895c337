// Products with what stands before or after them against float64, and rows that do not depend on their batch.
#include "tests/conformance/ops/product.h"

namespace tutti {
namespace {

// {64, 34000} has more tiles than a GPU has room for: blocks go on from one to the next.
const ProductShape kFusedShapes[] = {{8, 8}, {64, 48}, {136, 250}, {576, 192}, {520, 1030}, {64, 34000}, {4096, 1024}, {8192, 256}, {14336, 136}};

class FusedConformance : public ProductConformance {
 protected:
  bool too_long(int64_t tokens, const ProductShape& s) const { return !on_gpu() && tokens * s.n * s.k > int64_t{1} << 27; }
};

TEST_P(FusedConformance, LinearOfNorm) {
  for (const ProductShape& s : kFusedShapes) {
    const auto k = static_cast<size_t>(s.k), n = static_cast<size_t>(s.n);
    const Values w = host_normals({s.n, s.k}, activations(), 1 / std::sqrt(static_cast<double>(s.k)));
    const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{w.tensor});
    const Values bias = normals({s.n}, DType::kF32), norm = normals({s.k}, DType::kF32);
    for (const int64_t tokens : kTokens) {
      if (too_long(tokens, s)) continue;
      const Values x = normals({tokens, s.k});
      const Values y{Tensor(), normed(x, norm, 1e-5)};
      const Tensor out = poisoned({tokens, s.n}), logits = poisoned({tokens, s.n}, DType::kF32);
      ops::linear(ctx_, {x.tensor, norm.tensor, 1e-5}, packed, bias.tensor, out);
      ops::linear(ctx_, {x.tensor, norm.tensor, 1e-5}, packed, Tensor(), logits);
      EXPECT_EQ(read(x.tensor), x.values);
      expect_elements(read(out), [&](size_t row, size_t column) { return dot(y, row, w, column, k) + bias.values[column]; }, n,
                      tolerance(2.0) + of_sum(s.k), shape(tokens, s.k, s.n) + ", bias");
      expect_elements(read(logits), [&](size_t row, size_t column) { return dot(y, row, w, column, k); }, n, tolerance() + of_sum(s.k),
                      shape(tokens, s.k, s.n) + ", F32 out");
    }
  }
}

TEST_P(FusedConformance, LinearAdd) {
  for (const ProductShape& s : kFusedShapes) {
    const Values w = host_normals({s.n, s.k}, activations(), 1 / std::sqrt(static_cast<double>(s.k)));
    const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{w.tensor});
    const Values bias = normals({s.n}, DType::kF32);
    for (const int64_t tokens : kTokens) {
      if (too_long(tokens, s)) continue;
      const Values x = normals({tokens, s.k}), residual = normals({tokens, s.n});
      for (const bool with_bias : {false, true}) {
        const Tensor sum = clone(residual.tensor);
        ops::linear_add(ctx_, x.tensor, packed, with_bias ? bias.tensor : Tensor(), sum);
        expect_elements(
            read(sum),
            [&](size_t row, size_t column) {
              return residual.values[row * static_cast<size_t>(s.n) + column] + dot(x, row, w, column, static_cast<size_t>(s.k)) +
                     (with_bias ? bias.values[column] : 0.0);
            },
            static_cast<size_t>(s.n), tolerance(2.0) + of_sum(s.k), shape(tokens, s.k, s.n) + (with_bias ? ", bias" : ""));
      }
    }
  }
}

TEST_P(FusedConformance, GateUpSiluOfNorm) {
  for (const ProductShape& s : kFusedShapes) {
    const auto k = static_cast<size_t>(s.k);
    const double deviation = 1 / std::sqrt(static_cast<double>(s.k));
    const Values gate = host_normals({s.n, s.k}, activations(), deviation), up = host_normals({s.n, s.k}, activations(), deviation);
    const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{gate.tensor, up.tensor});
    const Values norm = normals({s.k}, DType::kF32);
    for (const int64_t tokens : kTokens) {
      if (too_long(tokens, s)) continue;
      const Values x = normals({tokens, s.k});
      const Values y{Tensor(), normed(x, norm, 1e-6)};
      const Tensor out = poisoned({tokens, s.n});
      ops::gate_up_silu(ctx_, {x.tensor, norm.tensor, 1e-6}, packed, out);
      expect_elements(
          read(out),
          [&](size_t row, size_t column) {
            const double g = dot(y, row, gate, column, k);
            return g / (1 + std::exp(-g)) * dot(y, row, up, column, k);
          },
          static_cast<size_t>(s.n), tolerance(4.0) + of_sum(s.k), shape(tokens, s.k, s.n));
    }
  }
}

// The same step again gives the same bits: counters and scratch are left as they were found.
TEST_P(FusedConformance, Repeats) {
  const int64_t k = 14336, n = 4096;
  const Values w = host_normals({n, k}, activations(), 1 / std::sqrt(static_cast<double>(k))), norm = normals({k}, DType::kF32);
  const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{w.tensor});
  for (const int64_t tokens : {1, 7, 24}) {
    const Values x = normals({tokens, k});
    std::vector<double> first;
    for (int i = 0; i < 10; ++i) {
      const Tensor out = poisoned({tokens, n});
      ops::linear(ctx_, {x.tensor, norm.tensor, 1e-5}, packed, Tensor(), out);
      if (i == 0) first = read(out);
      else EXPECT_EQ(read(out), first) << tokens;
    }
  }
}

// Each row alone, among few and among many: the same bits.
TEST_P(FusedConformance, BatchInvariant) {
  if (!on_gpu()) GTEST_SKIP() << "GPUs only; on the CPU it is always so (ops_row_invariance)";
  use({.batch_invariant = true});
  const int64_t k = 1024, n = 272, most = 200;
  const Values wide = host_normals({n, k}, activations(), 1 / 32.0), up = host_normals({n, k}, activations(), 1 / 32.0);
  const Values norm = normals({k}, DType::kF32), x = normals({most, k}), residual = normals({most, n});
  for (const bool fp8 : {false, true}) {
    const auto pack = [&](const std::vector<Tensor>& pieces) { return fp8 ? ops::pack_weight_fp8(ctx_, pieces, {}) : ops::pack_weight(ctx_, pieces); };
    const PackedWeight one = pack({wide.tensor}), two = pack({wide.tensor, up.tensor});
    const auto rows = [&](int64_t begin, int64_t count) {
      const ops::Input input{x.tensor.slice(0, begin, count), norm.tensor, 1e-5};
      const Tensor out = poisoned({count, n}), logits = poisoned({count, n}, DType::kF32), gated = poisoned({count, n}), sum = clone(residual.tensor);
      ops::linear(ctx_, input, one, Tensor(), out);
      ops::linear(ctx_, input, one, Tensor(), logits);
      ops::gate_up_silu(ctx_, input, two, gated);
      ops::linear_add(ctx_, x.tensor.slice(0, begin, count), one, Tensor(), sum.slice(0, begin, count));
      std::vector<double> all;
      for (const Tensor& t : {out, logits, gated}) {
        const std::vector<double> part = read(t);
        all.insert(all.end(), part.begin(), part.begin() + n);  // of the first row
      }
      const std::vector<double> part = read(sum);
      all.insert(all.end(), part.begin() + begin * n, part.begin() + (begin + 1) * n);
      return all;
    };
    for (const int64_t row : {0, 3, 64, 70}) {
      const std::vector<double> alone = rows(row, 1);
      for (const int64_t crowd : {2, 9, 24, 40, 64, 100, 130}) EXPECT_EQ(rows(row, crowd), alone) << row << " of " << crowd << (fp8 ? ", FP8" : "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FusedConformance, testing::ValuesIn(backends()), backend_name);

}  // namespace
}  // namespace tutti

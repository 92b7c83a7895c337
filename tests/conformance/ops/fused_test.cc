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
        const ops::NormAhead ahead{.reader = &packed};  // any weight may be brought closer
        ops::linear_add(ctx_, x.tensor, packed, with_bias ? bias.tensor : Tensor(), sum, ahead);
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

// What an addition leaves for the norm behind it, and products that take it.
TEST_P(FusedConformance, NormAhead) {
  const double eps = 1e-5;
  for (const bool invariant : {false, true}) {
    if (invariant && !on_gpu()) continue;
    if (on_gpu()) use({.batch_invariant = invariant});
    for (const ProductShape& s : {ProductShape{576, 192}, {136, 200}, {1024, 4096}, {4096, 576}}) {  // n is the size of the stream
      const Values w = host_normals({s.n, s.k}, activations(), 1 / std::sqrt(static_cast<double>(s.k)));
      const double deviation = 1 / std::sqrt(static_cast<double>(s.n));
      const Values gate = host_normals({136, s.n}, activations(), deviation), up = host_normals({136, s.n}, activations(), deviation);
      const PackedWeight add = ops::pack_weight(ctx_, std::vector<Tensor>{w.tensor}), one = ops::pack_weight(ctx_, std::vector<Tensor>{gate.tensor});
      const PackedWeight two = ops::pack_weight(ctx_, std::vector<Tensor>{gate.tensor, up.tensor});
      const Values norm = normals({s.n}, DType::kF32);
      for (const int64_t tokens : kTokens) {
        if (too_long(tokens, s)) continue;
        const std::string what = shape(tokens, s.k, s.n) + (invariant ? ", batch-invariant" : "");
        const Values x = normals({tokens, s.k}), residual = normals({tokens, s.n});
        const Tensor stream = clone(residual.tensor), scaled = poisoned({tokens, s.n});
        const Tensor squares = poisoned({tokens, ops::norm_parts(s.n)}, DType::kF32);
        const bool left = ops::linear_add(ctx_, x.tensor, add, Tensor(), stream, {norm.tensor, scaled, squares});
        const bool never = !on_gpu() || activations() == DType::kF16;
        if (never || invariant) {
          EXPECT_EQ(left, !never);
        }
        const Values sum{stream, read(stream)}, y{Tensor(), normed(sum, norm, eps)};
        expect_elements(sum.values, [&](size_t row, size_t column) {
          return residual.values[row * static_cast<size_t>(s.n) + column] + dot(x, row, w, column, static_cast<size_t>(s.k));
        }, static_cast<size_t>(s.n), tolerance(2.0) + of_sum(s.k), what);
        ops::Input input = left_for_norm(sum, norm, eps);
        if (left) {
          expect_close(read(scaled), read(input.scaled), 1e-9, what + ": scaled");
          expect_close(read(squares), read(input.squares), 1e-6, what + ": squares");
          input.scaled = scaled, input.squares = squares;
        }
        const Tensor out = poisoned({tokens, 136}), logits = poisoned({tokens, 136}, DType::kF32), gated = poisoned({tokens, 136});
        ops::linear(ctx_, input, one, Tensor(), out);
        ops::linear(ctx_, input, one, Tensor(), logits);
        ops::gate_up_silu(ctx_, input, two, gated);
        const auto k = static_cast<size_t>(s.n);
        const auto first = [&](size_t row, size_t column) { return dot(y, row, gate, column, k); };
        expect_elements(read(out), first, 136, tolerance(2.0) + of_sum(s.n), what + ", out");
        expect_elements(read(logits), first, 136, tolerance() + of_sum(s.n), what + ", F32 out");
        expect_elements(read(gated), [&](size_t row, size_t column) {
          const double g = first(row, column);
          return g / (1 + std::exp(-g)) * dot(y, row, up, column, k);
        }, 136, tolerance(4.0) + of_sum(s.n), what + ", gated");
      }
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
  const int64_t k = 1024, n = 272, most = 330;
  const Values wide = host_normals({n, k}, activations(), 1 / 32.0), up = host_normals({n, k}, activations(), 1 / 32.0);
  const Values norm = normals({k}, DType::kF32), x = normals({most, k}), residual = normals({most, n}), behind = normals({n}, DType::kF32);
  const Values back = host_normals({n, n}, activations(), 1 / 16.0);
  for (const bool fp8 : {false, true}) {
    const auto pack = [&](const std::vector<Tensor>& pieces) { return fp8 ? ops::pack_weight_fp8(ctx_, pieces, {}) : ops::pack_weight(ctx_, pieces); };
    const PackedWeight one = pack({wide.tensor}), two = pack({wide.tensor, up.tensor}), square = pack({back.tensor});
    const auto rows = [&](int64_t begin, int64_t count) {
      const ops::Input input{x.tensor.slice(0, begin, count), norm.tensor, 1e-5};
      const Tensor out = poisoned({count, n}), logits = poisoned({count, n}, DType::kF32), gated = poisoned({count, n}), sum = clone(residual.tensor);
      ops::linear(ctx_, input, one, Tensor(), out);
      ops::linear(ctx_, input, one, Tensor(), logits);
      ops::gate_up_silu(ctx_, input, two, gated);
      const Tensor part_sum = sum.slice(0, begin, count), scaled = poisoned({count, n}), squares = poisoned({count, ops::norm_parts(n)}, DType::kF32);
      const bool left = ops::linear_add(ctx_, x.tensor.slice(0, begin, count), one, Tensor(), part_sum, {behind.tensor, scaled, squares});
      EXPECT_EQ(left, !fp8 && activations() == DType::kBF16);
      ops::Input next(part_sum, behind.tensor, 1e-5);
      if (left) next.scaled = scaled, next.squares = squares;
      const Tensor out_next = poisoned({count, n});
      ops::linear(ctx_, next, square, Tensor(), out_next);
      std::vector<double> all;
      for (const Tensor& t : {out, logits, gated, out_next}) {
        const std::vector<double> part = read(t);
        all.insert(all.end(), part.begin(), part.begin() + n);  // of the first row
      }
      const std::vector<double> part = read(sum);
      all.insert(all.end(), part.begin() + begin * n, part.begin() + (begin + 1) * n);
      return all;
    };
    for (const int64_t row : {0, 3, 64, 70}) {
      const std::vector<double> alone = rows(row, 1);
      for (const int64_t crowd : token_counts({2, 9, 24, 40, 64, 100, 130})) EXPECT_EQ(rows(row, crowd), alone) << row << " of " << crowd << (fp8 ? ", FP8" : "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FusedConformance, testing::ValuesIn(backends()), backend_name);

}  // namespace
}  // namespace tutti

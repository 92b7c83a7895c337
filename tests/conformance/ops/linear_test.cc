// linear, gate_up_silu and embedding against float64.
#include <cmath>
#include <cstring>
#include <functional>
#include <span>

#include "base/error.h"
#include "tests/conformance/ops/backend.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace tutti {
namespace {

class LinearConformance : public OpsConformance {
 protected:
  // Elements whose expected values are computed: all of a small result, a random choice of a large one.
  std::vector<size_t> checked(size_t count) {
    std::vector<size_t> indices;
    if (count <= 4096) {
      for (size_t i = 0; i < count; ++i) indices.push_back(i);
    } else {
      for (int i = 0; i < 4096; ++i) indices.push_back(static_cast<size_t>(uniform(0, static_cast<int64_t>(count) - 1)));
    }
    return indices;
  }

  void expect_elements(const std::vector<double>& actual, const std::function<double(size_t, size_t)>& expected, size_t columns,
                       double allowed, const std::string& what) {
    std::vector<double> a, e;
    for (double v : actual) ASSERT_TRUE(std::isfinite(v)) << what << ": an element was not written";
    for (size_t i : checked(actual.size())) {
      a.push_back(actual[i]);
      e.push_back(expected(i / columns, i % columns));
    }
    expect_close(a, e, allowed, what);
  }

  static double dot(const Values& x, size_t row, const Values& w, size_t column, size_t k) {
    double sum = 0;
    for (size_t i = 0; i < k; ++i) sum += x.values[row * k + i] * w.values[column * k + i];
    return sum;
  }

  // What a float32 sum of k products may be off by: its roundings are a random walk. The GPU's matrix units cut off
  // where others round.
  double of_sum(int64_t k) const { return (on_gpu() ? 0x1p-23 : 0x1p-24) * std::sqrt(static_cast<double>(k)); }

  std::string shape(int64_t tokens, int64_t k, int64_t n) const {
    return std::to_string(tokens) + " x " + std::to_string(k) + " -> " + std::to_string(n);
  }
};

struct Shape {
  int64_t k, n;
};

// Odd sizes, tails of every tile, and the shapes of real models.
const Shape kShapes[] = {{8, 8},      {64, 48},     {136, 250},   {576, 192},   {520, 1030},
                         {2056, 40},  {1536, 576},  {4096, 1024}, {4096, 6144}, {14336, 136}};
const int64_t kTokens[] = {1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 100, 257};

TEST_P(LinearConformance, Linear) {
  for (const Shape& s : kShapes) {
    const Values w = host_normals({s.n, s.k}, activations(), 1 / std::sqrt(static_cast<double>(s.k)));
    const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{w.tensor});
    const Values bias = normals({s.n}, DType::kF32);
    for (int64_t tokens : kTokens) {
      if (!on_gpu() && tokens * s.n * s.k > int64_t{1} << 28) continue;
      const Values x = normals({tokens, s.k});
      for (const bool with_bias : {false, true}) {
        const Tensor out = poisoned({tokens, s.n});
        ops::linear(ctx_, x.tensor, packed, with_bias ? bias.tensor : Tensor(), out);
        expect_elements(
            read(out),
            [&](size_t row, size_t column) {
              return dot(x, row, w, column, static_cast<size_t>(s.k)) + (with_bias ? bias.values[column] : 0.0);
            },
            static_cast<size_t>(s.n), tolerance(with_bias ? 1.5 : 1.0) + of_sum(s.k), shape(tokens, s.k, s.n) + (with_bias ? ", bias" : ""));
      }
      const Tensor logits = poisoned({tokens, s.n}, DType::kF32);
      ops::linear(ctx_, x.tensor, packed, Tensor(), logits);
      expect_elements(
          read(logits), [&](size_t row, size_t column) { return dot(x, row, w, column, static_cast<size_t>(s.k)); },
          static_cast<size_t>(s.n), of_sum(s.k), shape(tokens, s.k, s.n) + ", F32 out");
    }
  }
}

TEST_P(LinearConformance, GateUpSilu) {
  for (const Shape& s : kShapes) {
    const double deviation = 1 / std::sqrt(static_cast<double>(s.k));
    const Values gate = host_normals({s.n, s.k}, activations(), deviation), up = host_normals({s.n, s.k}, activations(), deviation);
    const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{gate.tensor, up.tensor});
    for (int64_t tokens : kTokens) {
      if (!on_gpu() && tokens * s.n * s.k > int64_t{1} << 27) continue;
      const Values x = normals({tokens, s.k});
      const Tensor out = poisoned({tokens, s.n});
      ops::gate_up_silu(ctx_, x.tensor, packed, out);
      expect_elements(
          read(out),
          // Gate, up and their product may each be rounded.
          [&](size_t row, size_t column) {
            const double g = dot(x, row, gate, column, static_cast<size_t>(s.k)), u = dot(x, row, up, column, static_cast<size_t>(s.k));
            return g / (1 + std::exp(-g)) * u;
          },
          static_cast<size_t>(s.n), tolerance(3.0) + of_sum(s.k), shape(tokens, s.k, s.n));
    }
  }
}

// FP8 weights with a scale a row. Tokens that E4M3 holds exactly lose nothing on the way; others are rounded once.
TEST_P(LinearConformance, Fp8) {
  if (!on_gpu()) GTEST_SKIP() << "GPUs only";
  for (const Shape& s : {Shape{64, 48}, Shape{592, 208}, Shape{2064, 400}, Shape{4096, 1024}, Shape{14336, 144}}) {
    const auto k = static_cast<size_t>(s.k), n = static_cast<size_t>(s.n);
    std::vector<Tensor> pieces, scales;
    Values w;
    for (const int64_t rows : {s.n, s.n}) {
      const Values codes = host_normals({rows, s.k}, DType::kF8E4M3, 40.0);
      const Values scale = host_normals({rows}, DType::kF32, 0.02 / std::sqrt(static_cast<double>(s.k)));
      pieces.push_back(codes.tensor);
      scales.push_back(scale.tensor);
      for (size_t i = 0; i < codes.values.size(); ++i) w.values.push_back(codes.values[i] * scale.values[i / k]);
    }
    const PackedWeight one = ops::pack_weight_fp8(ctx_, std::span(pieces).first(1), std::span(scales).first(1));
    const PackedWeight both = ops::pack_weight_fp8(ctx_, pieces, scales);
    for (const int64_t tokens : kTokens) {
      for (const bool exact : {true, false}) {
        Values x = exact ? host_normals({tokens, s.k}, DType::kF8E4M3, 40.0) : host_normals({tokens, s.k}, activations());
        if (exact) {  // with 448 as the largest element, the scale is 1
          Values wide{Tensor::empty({tokens, s.k}, activations()), x.values};
          for (int64_t t = 0; t < tokens; ++t) wide.values[static_cast<size_t>(t) * k + static_cast<size_t>(uniform(0, s.k - 1))] = 448.0;
          x = on_device(wide);
        } else {
          x = on_device(x);
        }
        // Hopper's FP8 units align the products of one instruction to about 14 bits and cut off the rest, whatever k is.
        const double rounding = exact ? 0.0 : 0x1p-4, sum = 0x1p-12 + of_sum(s.k);
        const std::string name = shape(tokens, s.k, s.n) + (exact ? ", exact tokens" : "");
        const Tensor out = poisoned({tokens, s.n}), logits = poisoned({tokens, s.n}, DType::kF32);
        ops::linear(ctx_, x.tensor, one, Tensor(), out);
        ops::linear(ctx_, x.tensor, one, Tensor(), logits);
        const auto product = [&](size_t row, size_t column) { return dot(x, row, w, column, k); };
        expect_elements(read(out), product, n, tolerance() + sum + rounding, name);
        expect_elements(read(logits), product, n, 1e-6 + sum + rounding, name + ", F32 out");
        if (!exact) {
          const Tensor gated = poisoned({tokens, s.n});
          ops::gate_up_silu(ctx_, x.tensor, both, gated);
          expect_elements(
              read(gated), [&](size_t row, size_t column) { const double g = dot(x, row, w, column, k); return g / (1 + std::exp(-g)) * dot(x, row, w, column + n, k); },
              n, tolerance(3.0) + sum + 2 * rounding, name + ", gated");
        }
      }
    }
  }
}

TEST_P(LinearConformance, Fp8FromWiderWeights) {
  if (!on_gpu()) GTEST_SKIP() << "GPUs only";
  const int64_t k = 512, n = 96, tokens = 5;
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    const Values w = host_normals({n, k}, dtype, 0.04);
    const PackedWeight packed = ops::pack_weight_fp8(ctx_, std::vector<Tensor>{w.tensor}, {});
    const Values x = normals({tokens, k});
    const Tensor out = poisoned({tokens, n});
    ops::linear(ctx_, x.tensor, packed, Tensor(), out);
    expect_elements(
        read(out), [&](size_t row, size_t column) { return dot(x, row, w, column, k); }, n, 2 * 0x1p-4, std::string(dtype_name(dtype)));
  }
  EXPECT_THROW(ops::pack_weight_fp8(ctx_, std::vector<Tensor>{host_normals({16, 24}, DType::kF32).tensor}, {}), ConfigError);
}

TEST_P(LinearConformance, StridedRowsAndPieces) {
  const int64_t k = 256, n[] = {96, 32, 40};
  std::vector<Tensor> pieces;
  Values all;
  for (int64_t rows : n) {
    const Values piece = host_normals({rows, k + 16}, activations(), 0.06);
    pieces.push_back(piece.tensor.slice(1, 8, k));
    for (int64_t r = 0; r < rows; ++r) {
      all.values.insert(all.values.end(), piece.values.begin() + r * (k + 16) + 8, piece.values.begin() + r * (k + 16) + 8 + k);
    }
  }
  const PackedWeight packed = ops::pack_weight(ctx_, pieces);
  for (int64_t tokens : {1, 7, 40}) {
    const Values wide = normals({tokens, 2 * k});
    Values x;
    for (int64_t t = 0; t < tokens; ++t) {
      x.values.insert(x.values.end(), wide.values.begin() + t * 2 * k + k, wide.values.begin() + (t + 1) * 2 * k);
    }
    const Tensor out = poisoned({tokens, 168});
    ops::linear(ctx_, wide.tensor.slice(1, k, k), packed, Tensor(), out);
    expect_elements(
        read(out), [&](size_t row, size_t column) { return dot(x, row, all, column, k); }, 168, tolerance(), shape(tokens, k, 168));
  }
}

// Weights of every type that files hold.
TEST_P(LinearConformance, WeightTypes) {
  const int64_t k = 512, n = 40, tokens = 3;
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K}) {
    const Values values = host_normals({n, k}, DType::kF32, 0.05);
    Values w{Tensor::empty({n, k}, dtype), {}};
    std::vector<float> row(k);
    for (int64_t r = 0; r < n; ++r) {
      if (dtype == DType::kF32) std::memcpy(w.tensor.row<float>(r), values.tensor.row<float>(r), k * 4);
      else quantize_row(values.tensor.row<float>(r), k, dtype, w.tensor.row<uint8_t>(r));
      dequantize_row(dtype, w.tensor.row<uint8_t>(r), k, row.data());
      w.values.insert(w.values.end(), row.begin(), row.end());
    }
    const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{w.tensor});
    const Values x = normals({tokens, k});
    const Tensor out = poisoned({tokens, n});
    ops::linear(ctx_, x.tensor, packed, Tensor(), out);
    // The CPU rounds activations to 8 bits for quantised weights, and to 16 for those of 16; the GPU rounds the weights
    // to the activations' type.
    const double allowed = on_gpu() ? tolerance(1.5) : is_quantized(dtype) ? 2e-2 : dtype == DType::kF32 ? 1e-5 : 3e-3;
    expect_elements(
        read(out), [&](size_t token, size_t column) { return dot(x, token, w, column, k); }, n, allowed, std::string(dtype_name(dtype)));
  }
}

TEST_P(LinearConformance, Embedding) {
  for (int64_t width : {8, 100, 576, 4096}) {
    const int64_t rows = 50, begin = 1000;
    const Values table = host_normals({rows, width}, activations());
    const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{table.tensor});
    std::vector<int32_t> ids = {1000, 1049, 999, 1050, 0};
    for (int i = 0; i < 20; ++i) ids.push_back(static_cast<int32_t>(uniform(900, 1150)));
    const Tensor out = poisoned({static_cast<int64_t>(ids.size()), width});
    ops::embedding(ctx_, ints(ids), packed, begin, out);
    std::vector<double> expected;
    for (int32_t id : ids) {
      for (int64_t i = 0; i < width; ++i) {
        const bool inside = id >= begin && id < begin + rows;
        expected.push_back(inside ? table.values[static_cast<size_t>((id - begin) * width + i)] : 0.0);
      }
    }
    EXPECT_EQ(read(out), expected) << "width " << width;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LinearConformance, testing::ValuesIn(backends()), backend_name);

}  // namespace
}  // namespace tutti

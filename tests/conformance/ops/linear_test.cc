// linear, gate_up_silu and embedding against float64.
#include <cmath>
#include <cstring>

#include "tests/conformance/ops/product.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace tutti {
namespace {

using Shape = ProductShape;
class LinearConformance : public ProductConformance {};

// Odd sizes, tails of every tile, and the shapes of real models.
const Shape kShapes[] = {{8, 8},      {64, 48},     {136, 250},   {576, 192},   {520, 1030},
                         {2056, 40},  {1536, 576},  {64, 34000}, {4096, 1024}, {4096, 6144}, {14336, 136}};

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
    const std::vector<int32_t> chosen = {1007, 3, 1049};  // by the device, in the step before
    std::vector<int32_t> given = ids;
    for (const int32_t j : {2, 0, 1, 2}) {
      given.push_back(-1 - j);
      ids.push_back(chosen[static_cast<size_t>(j)]);
    }
    const Tensor out = poisoned({static_cast<int64_t>(ids.size()), width});
    ops::embedding(ctx_, {ints(given), ints(chosen)}, packed, begin, out);
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

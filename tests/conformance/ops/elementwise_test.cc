// Norms, additions, rope and row copies against float64.
#include <cmath>

#include "tests/conformance/ops/backend.h"

namespace tutti {
namespace {

class ElementwiseConformance : public OpsConformance {};

std::vector<double> normed(const std::vector<double>& x, const std::vector<double>& weight, double eps) {
  std::vector<double> out(x.size());
  const size_t n = weight.size();
  for (size_t row = 0; row < x.size() / n; ++row) {
    double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += x[row * n + i] * x[row * n + i];
    for (size_t i = 0; i < n; ++i) out[row * n + i] = x[row * n + i] / std::sqrt(squares / static_cast<double>(n) + eps) * weight[i];
  }
  return out;
}

TEST_P(ElementwiseConformance, RmsNorm) {
  for (int64_t width : {5, 64, 128, 570, 1024, 4096, 8192, 9000, 16384}) {
    for (int64_t rows : {1, 3, 70}) {
      const Values x = normals({rows, width}), weight = normals({width}, DType::kF32);
      const Tensor out = poisoned({rows, width});
      ops::rms_norm(ctx_, x.tensor, weight.tensor, 1e-5, out);
      expect_close(read(out), normed(x.values, weight.values, 1e-5), tolerance(), std::to_string(rows) + " x " + std::to_string(width));
    }
  }
}

// As for q and k: heads inside wider rows, in place.
TEST_P(ElementwiseConformance, RmsNormOfHeadsInPlace) {
  for (int64_t head_dim : {64, 80, 128, 256}) {
    const int64_t tokens = 9, heads = 6, first = 2, count = 3;
    const Values x = normals({tokens, heads * head_dim}), weight = normals({head_dim}, DType::kF32);
    const Tensor part = x.tensor.slice(1, first * head_dim, count * head_dim).split_last(count, head_dim);
    ops::rms_norm(ctx_, part, weight.tensor, 1e-6, part);
    std::vector<double> expected = x.values;
    for (int64_t t = 0; t < tokens; ++t) {
      const auto begin = expected.begin() + (t * heads + first) * head_dim;
      const std::vector<double> row = normed({begin, begin + count * head_dim}, weight.values, 1e-6);
      std::copy(row.begin(), row.end(), begin);
    }
    expect_close(read(x.tensor), expected, tolerance(), "head_dim " + std::to_string(head_dim));
  }
}

TEST_P(ElementwiseConformance, AddRmsNorm) {
  for (int64_t width : {64, 571, 576, 4096, 12288}) {
    for (int64_t rows : {1, 8, 65}) {
      const Values residual = normals({rows, width}), delta = normals({rows, width}), weight = normals({width}, DType::kF32);
      const Tensor out = poisoned({rows, width});
      ops::add_rms_norm(ctx_, residual.tensor, delta.tensor, weight.tensor, 1e-5, out);
      std::vector<double> sum = residual.values;
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = rounded(sum[i] + delta.values[i], activations());
      EXPECT_EQ(read(residual.tensor), sum);
      expect_close(read(out), normed(sum, weight.values, 1e-5), tolerance(), std::to_string(rows) + " x " + std::to_string(width));
    }
  }
}

TEST_P(ElementwiseConformance, Add) {
  for (int64_t width : {3, 576, 4096}) {
    const Values x = normals({7, width}), y = normals({7, width});
    ops::add(ctx_, x.tensor, y.tensor);
    std::vector<double> sum = x.values;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = rounded(sum[i] + y.values[i], activations());
    EXPECT_EQ(read(x.tensor), sum);
  }
}

TEST_P(ElementwiseConformance, GatherRows) {
  for (int64_t width : {3, 33, 576, 4096}) {
    const Values x = normals({20, width});
    std::vector<int32_t> rows;
    for (int i = 0; i < 11; ++i) rows.push_back(static_cast<int32_t>(uniform(0, 19)));
    const Tensor out = poisoned({11, width});
    ops::gather_rows(ctx_, x.tensor, ints(rows), out);
    std::vector<double> expected;
    for (int32_t r : rows) expected.insert(expected.end(), x.values.begin() + r * width, x.values.begin() + (r + 1) * width);
    EXPECT_EQ(read(out), expected);
  }
}

TEST_P(ElementwiseConformance, CopyWithTable) {
  for (int columns : {1, 300}) {
    const int rows = 7, stride = 301;
    std::vector<int32_t> numbers, table(static_cast<size_t>(rows * columns)), before(static_cast<size_t>(rows * stride), -1);
    for (int i = 0; i < 1000; ++i) numbers.push_back(static_cast<int32_t>(uniform(0, 1 << 20)));
    for (int32_t& entry : table) entry = static_cast<int32_t>(uniform(0, 1 << 20));
    std::vector<double> expected(before.begin(), before.end());
    for (int i = 0; i < rows * columns; ++i) expected[static_cast<size_t>(i / columns * stride + i % columns)] = table[static_cast<size_t>(i)];
    const Tensor to = ints(std::vector<int32_t>(numbers.size(), -1)), all = ints(before);
    const Tensor from_table = ints(table).reshape({rows, columns}), to_table = all.reshape({rows, stride}).slice(1, 0, columns);
    ops::copy_with_table(ctx_, ints(numbers), to, from_table, to_table);
    EXPECT_EQ(read(to), std::vector<double>(numbers.begin(), numbers.end()));
    EXPECT_EQ(read(all), expected);
  }
}

TEST_P(ElementwiseConformance, Argmax) {
  for (int64_t columns : {1, 7, 1000, 1025, 128256}) {
    const int64_t rows = 6;
    Values x = normals({rows, columns}, DType::kF32);
    for (int64_t r = 2; r < rows; ++r) {  // ties: the first of equals
      for (int i = 0; i < 3; ++i) x.values[static_cast<size_t>(r * columns + uniform(0, columns - 1))] = 9.0;
    }
    for (int64_t i = 0; i < columns; ++i) x.values[static_cast<size_t>(columns + i)] = -std::abs(x.values[static_cast<size_t>(columns + i)]) - 1;
    for (double& v : x.values) v = rounded(v, DType::kF32);
    if (columns > 1) x.values[0] = NAN;
    const Values there = on_device(x);
    const Tensor values = poisoned({rows}, DType::kF32), indices = poisoned({rows}, DType::kI32);
    ops::argmax(ctx_, there.tensor, values, indices);
    std::vector<double> best, where;
    for (int64_t r = 0; r < rows; ++r) {
      const double* row = x.values.data() + r * columns;
      int64_t at = 0;
      for (int64_t i = 1; i < columns; ++i) {
        if (row[i] > row[at] || std::isnan(row[at])) at = i;
      }
      best.push_back(row[at]);
      where.push_back(static_cast<double>(at));
    }
    EXPECT_EQ(read(values), best) << columns;
    EXPECT_EQ(read(indices), where) << columns;
  }
}

// A vocabulary cut in three, each part searched on its own, as by the ranks of a tensor-parallel group.
TEST_P(ElementwiseConformance, BestOfParts) {
  const int64_t rows = 300, columns = 3000, first[] = {0, 1024, 2048, columns};
  Values x = normals({rows, columns}, DType::kF32);
  for (int64_t r = 1; r < rows; ++r) {  // ties within and between parts: the first of equals
    for (int i = 0; i < 3; ++i) x.values[static_cast<size_t>(r * columns + uniform(0, columns - 1))] = 9.0;
  }
  for (int64_t c = 0; c < columns; ++c) x.values[static_cast<size_t>(c)] = NAN;
  x.values[1500] = -3.0;
  for (double& v : x.values) v = rounded(v, DType::kF32);
  const Values there = on_device(x);
  const Tensor parts = poisoned({3, 2, rows}, DType::kI32);
  for (int part = 0; part < 3; ++part) {
    const Tensor own = parts.slice(0, part, 1).reshape({2, rows});
    const Tensor own_values = Tensor::view(own.row<float>(1), {rows}, DType::kF32, own.device());
    ops::argmax(ctx_, there.tensor.slice(1, first[part], first[part + 1] - first[part]), own_values,
                own.slice(0, 0, 1).reshape({rows}), first[part]);
  }
  const Tensor values = poisoned({rows}, DType::kF32), indices = poisoned({rows}, DType::kI32);
  ops::best_of_parts(ctx_, parts, values, indices);
  std::vector<double> best, where;
  for (int64_t r = 0; r < rows; ++r) {
    const double* row = x.values.data() + r * columns;
    int64_t at = 0;
    for (int64_t i = 1; i < columns; ++i) {
      if (row[i] > row[at] || (std::isnan(row[at]) && !std::isnan(row[i]))) at = i;
    }
    best.push_back(row[at]);
    where.push_back(static_cast<double>(at));
  }
  EXPECT_EQ(read(values), best);
  EXPECT_EQ(read(indices), where);
}

TEST_P(ElementwiseConformance, Rope) {
  struct Shape {
    int64_t heads, head_dim, pairs;
  };
  for (const Shape& s : {Shape{32, 128, 64}, Shape{3, 64, 32}, Shape{5, 80, 36}, Shape{2, 96, 16}, Shape{1, 256, 128}, Shape{4, 10, 3}}) {
    for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
      const int64_t tokens = 13, max_positions = 50;
      const Values wide = normals({tokens, (s.heads + 1) * s.head_dim}), table = normals({max_positions, 2, s.pairs}, DType::kF32);
      const Tensor x = wide.tensor.slice(1, s.head_dim, s.heads * s.head_dim).split_last(s.heads, s.head_dim);
      std::vector<int32_t> positions;
      for (int64_t t = 0; t < tokens; ++t) positions.push_back(static_cast<int32_t>(uniform(0, max_positions - 1)));
      ops::rope(ctx_, x, ints(positions), table.tensor, layout);
      std::vector<double> expected = wide.values;
      for (int64_t t = 0; t < tokens; ++t) {
        const double* cos = table.values.data() + positions[static_cast<size_t>(t)] * 2 * s.pairs;
        const double* sin = cos + s.pairs;
        for (int64_t h = 1; h <= s.heads; ++h) {
          double* head = expected.data() + (t * (s.heads + 1) + h) * s.head_dim;
          for (int64_t i = 0; i < s.pairs; ++i) {
            const int64_t a = layout == RopeLayout::kHalf ? i : 2 * i, b = layout == RopeLayout::kHalf ? s.pairs + i : 2 * i + 1;
            const double turned = head[a] * cos[i] - head[b] * sin[i];
            head[b] = head[b] * cos[i] + head[a] * sin[i];
            head[a] = turned;
          }
        }
      }
      expect_close(read(wide.tensor), expected, tolerance(), std::to_string(s.heads) + " x " + std::to_string(s.head_dim));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ElementwiseConformance, testing::ValuesIn(backends()), backend_name);

}  // namespace
}  // namespace tutti

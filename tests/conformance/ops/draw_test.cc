// draw_tokens(): the token lies where the running sum of the weights that are left passes the draw.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "tests/conformance/ops/backend.h"



namespace tutti {
namespace {

class DrawConformance : public OpsConformance {
 protected:
  void SetUp() override {
    OpsConformance::SetUp();
    if (!IsSkipped() && !on_gpu()) GTEST_SKIP() << "GPUs only: hosts draw from logits themselves";
  }

  Tensor draws(const std::vector<ops::TokenDraw>& all) {
    std::vector<float> bits(all.size() * sizeof(ops::TokenDraw) / sizeof(float));
    std::memcpy(bits.data(), all.data(), bits.size() * sizeof(float));
    const Tensor tensor = floats(bits);
    return Tensor::view(tensor.data(), {static_cast<int64_t>(tensor.bytes())}, DType::kU8, ctx_.device, std::make_shared<Tensor>(tensor));
  }
};

// Weights of a row, in float64; `slack` says how close to a limit a weight may be for either answer to be right.
std::vector<double> weights_of(const double* row, int64_t columns, const ops::TokenDraw& draw, double slack) {
  const double most = *std::max_element(row, row + columns);
  std::vector<double> weights(static_cast<size_t>(columns));
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::exp((row[i] - most) * draw.inverse_temperature);
    if (weights[i] < draw.min_weight * (1 + slack)) weights[i] = 0;
  }
  if (draw.top_p >= 1) return weights;
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  const double target = draw.top_p * (1 - slack) * std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (const size_t i : order) {
    if (sum >= target) weights[i] = 0;
    sum += weights[i];
  }
  return weights;
}

// Whether the token is right for limits that lie within `slack` of those asked for.
bool may_be(const double* row, int64_t columns, const ops::TokenDraw& draw, int token, double slack) {
  const std::vector<double> weights = weights_of(row, columns, draw, slack);
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0), target = draw.draw * all;
  const double before = std::accumulate(weights.begin(), weights.begin() + token, 0.0), after = before + weights[static_cast<size_t>(token)];
  return weights[static_cast<size_t>(token)] > 0 && target > before - 1e-5 * all && target < after + 1e-5 * all;
}

TEST_P(DrawConformance, TheDrawFallsOnTheToken) {
  for (int64_t columns : {1, 7, 1000, 1025, 32000, 128256}) {
    const int64_t rows = 24;
    const Values x = normals({rows, columns}, DType::kF32, 3.0);
    std::vector<ops::TokenDraw> all(static_cast<size_t>(rows));
    std::uniform_real_distribution<double> unit;
    for (size_t r = 0; r < all.size(); ++r) {
      all[r] = {.draw = r == 3 ? 0.0 : r == 4 ? 0x1.fffffffffffffp-1 : unit(random_), .inverse_temperature = r % 3 == 0 ? 1.0f : 1.25f};
      if (r % 2 == 1) all[r].top_p = r % 4 == 1 ? 0.9f : 0.3f;
      if (r % 5 == 4) all[r].min_weight = 0.02f;
      if (r % 6 == 5) all[r].inverse_temperature = 0;
    }
    Tensor values = poisoned({rows}, DType::kF32), tokens = poisoned({rows}, DType::kI32);
    ops::argmax(ctx_, x.tensor, values, tokens);
    const std::vector<double> best = read(tokens), best_values = read(values);
    values = poisoned({rows}, DType::kF32), tokens = poisoned({rows}, DType::kI32);
    ops::draw_tokens(ctx_, x.tensor, draws(all), values, tokens);
    const std::vector<double> drawn = read(tokens);
    EXPECT_EQ(read(values), best_values);
    for (size_t r = 0; r < all.size(); ++r) {
      const double* row = x.values.data() + static_cast<int64_t>(r) * columns;
      const int token = static_cast<int>(drawn[r]);
      ASSERT_TRUE(token >= 0 && token < columns);
      if (all[r].inverse_temperature == 0) {
        EXPECT_EQ(drawn[r], best[r]);
        continue;
      }
      EXPECT_TRUE(may_be(row, columns, all[r], token, 1e-4) || may_be(row, columns, all[r], token, -1e-4) || may_be(row, columns, all[r], token, 0))
          << columns << " columns, row " << r << ": token " << token << " for the draw " << all[r].draw;
    }
  }
}

// How often each of a few tokens comes is what their weights say.
TEST_P(DrawConformance, FrequenciesAreTheWeights) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f};
  const int64_t rows = 4096, columns = 4;
  std::vector<float> x;
  std::vector<ops::TokenDraw> all;
  std::uniform_real_distribution<double> unit;
  for (int64_t r = 0; r < rows; ++r) {
    x.insert(x.end(), logits.begin(), logits.end());
    all.push_back({.draw = unit(random_), .inverse_temperature = 1.0f});
  }
  const Tensor row_values = floats(x).reshape({rows, columns}), values = poisoned({rows}, DType::kF32), tokens = poisoned({rows}, DType::kI32);
  ops::draw_tokens(ctx_, row_values, draws(all), values, tokens);
  std::vector<double> count(4);
  for (const double token : read(tokens)) ++count.at(static_cast<size_t>(token));
  double sum = 0;
  for (const float l : logits) sum += std::exp(l);
  for (size_t i = 0; i < count.size(); ++i) {
    const double share = std::exp(logits[i]) / sum, deviation = std::sqrt(share * (1 - share) / rows);
    EXPECT_NEAR(count[i] / rows, share, 5 * deviation) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DrawConformance, testing::ValuesIn(backends()), backend_name);

}  // namespace
}  // namespace tutti

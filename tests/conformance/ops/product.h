// Products under test: expected elements in float64, and how far a sum may be off.
#pragma once

#include <cmath>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/conformance/ops/backend.h"

namespace tutti {

class ProductConformance : public OpsConformance {
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

  // rms_norm(x) * weight.
  static std::vector<double> normed(const Values& x, const Values& weight, double eps) {
    std::vector<double> out(x.values.size());
    const size_t n = weight.values.size();
    for (size_t row = 0; row < out.size() / n; ++row) {
      double squares = 0;
      for (size_t i = 0; i < n; ++i) squares += x.values[row * n + i] * x.values[row * n + i];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + eps);
      for (size_t i = 0; i < n; ++i) out[row * n + i] = x.values[row * n + i] * factor * weight.values[i];
    }
    return out;
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

struct ProductShape {
  int64_t k, n;
};
// TUTTI_CONFORMANCE_TOKENS, "1,2": only these, so that a slow tool can share them out.
inline std::vector<int64_t> token_counts(std::vector<int64_t> all) {
  const char* chosen = std::getenv("TUTTI_CONFORMANCE_TOKENS");
  if (chosen == nullptr) return all;
  std::vector<int64_t> counts;
  std::stringstream list(chosen);
  for (std::string count; std::getline(list, count, ',');) counts.push_back(std::stoll(count));
  CHECK(!counts.empty());  // or the tests would look at nothing
  return counts;
}
const std::vector<int64_t> kTokens = token_counts({1, 2, 3, 5, 8, 9, 16, 17, 33, 64, 100, 257});

}  // namespace tutti

// How far one model's predictions are from another's.
#pragma once

#include <cmath>
#include <vector>

#include "base/check.h"

namespace tutti::testing {

// Mean over the positions of sum p log(p / q); rows of log-probabilities over the whole vocabulary.
inline double mean_divergence(const std::vector<std::vector<float>>& p, const std::vector<std::vector<float>>& q) {
  CHECK_EQ(p.size(), q.size());
  double sum = 0.0;
  for (size_t r = 0; r < p.size(); ++r) {
    CHECK_EQ(p[r].size(), q[r].size());
    for (size_t i = 0; i < p[r].size(); ++i) sum += std::exp(static_cast<double>(p[r][i])) * (p[r][i] - q[r][i]);
  }
  return sum / static_cast<double>(p.size());
}

}  // namespace tutti::testing

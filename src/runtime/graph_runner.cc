#include "runtime/graph_runner.h"

#include <algorithm>

namespace tutti {

int64_t GraphRunner::padded(int64_t rows) const {
  const auto found = graphs_.lower_bound(rows);
  return found == graphs_.end() ? 0 : found->first;
}

std::vector<int64_t> GraphRunner::sizes(int64_t most) {
  constexpr int64_t kMost = 512;
  std::vector<int64_t> all;
  for (int64_t rows = 1; rows <= std::min(most, kMost); rows += rows < 4 ? rows : rows < 8 ? 4 : rows < 256 ? 8 : 32) all.push_back(rows);
  if (most <= kMost && all.back() != most) all.push_back(most);
  return all;
}

}  // namespace tutti

#include "runtime/graph_runner.h"

#include <algorithm>

namespace tutti {

int64_t GraphRunner::padded(int64_t rows) const {
  const auto found = graphs_.lower_bound(rows);
  return found == graphs_.end() ? 0 : found->first;
}

std::vector<int64_t> GraphRunner::sizes(int64_t most) {
  std::vector<int64_t> all;
  for (int64_t rows = 1; rows <= most; rows += rows < 4 ? rows : rows < 8 ? 4 : 8) all.push_back(rows);
  if (all.back() != most) all.push_back(most);
  return all;
}

}  // namespace tutti

#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace tutti {
namespace {

// Levenshtein distance.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

std::string nearest_within(std::string_view name, std::span<const std::string> candidates, size_t most_edits) {
  const std::string* best = nullptr;
  for (const std::string& candidate : candidates) {
    const size_t distance = edits(name, candidate);
    if (distance > most_edits || (best != nullptr && distance == most_edits)) continue;
    most_edits = distance;
    best = &candidate;
  }
  return best == nullptr ? "" : *best;
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  return nearest_within(name, candidates, std::string::npos);
}

std::string likely_name(std::string_view name, std::span<const std::string> candidates) {
  const size_t dashes = std::min(name.find_first_not_of('-'), name.size());  // those of a flag are no letters of it
  return nearest_within(name, candidates, (name.size() - dashes) / 3 + 1);
}

}  // namespace tutti

#include "text/byte_trie.h"

#include <algorithm>
#include <deque>

namespace tutti {

// Level by level over the sorted entries: the entries below a node are a range of them.
ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries) {
  root_.fill(kNone);
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    int32_t node;    // kNone: the root
    size_t begin, end, depth;
  };
  std::deque<Range> ranges{{kNone, 0, entries.size(), 0}};
  while (!ranges.empty()) {
    const Range r = ranges.front();
    ranges.pop_front();
    size_t i = r.begin;
    for (bool first = true; i < r.end && entries[i].first.size() == r.depth; ++i, first = false) {
      if (first && r.node != kNone) nodes_[r.node].value = entries[i].second;
    }
    const auto first_child = static_cast<int32_t>(nodes_.size());
    uint16_t count = 0;
    while (i < r.end) {
      const auto byte = static_cast<uint8_t>(entries[i].first[r.depth]);
      size_t end = i;
      while (end < r.end && static_cast<uint8_t>(entries[end].first[r.depth]) == byte) ++end;
      const auto node = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.byte = byte});
      ++count;
      if (r.node == kNone) root_[byte] = node;
      ranges.push_back({node, i, end, r.depth + 1});
      i = end;
    }
    if (r.node != kNone) {
      nodes_[r.node].first_child = first_child;
      nodes_[r.node].num_children = count;
    }
  }
}

}  // namespace tutti

// A trie of byte strings, for finding every entry that a text begins with. Built once, const and thread-safe afterwards.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

class ByteTrie {
 public:
  ByteTrie() { root_.fill(kNone); }
  // Entries with their values (>= 0); of equal entries the first counts.
  explicit ByteTrie(std::vector<std::pair<std::string_view, int32_t>> entries);

  // Calls visit(length, value) for each entry that text[pos...] begins with, the shortest first.
  template <typename Visit>
  void for_each_prefix(std::string_view text, size_t pos, Visit visit) const {
    if (pos >= text.size()) return;
    int32_t node = root_[static_cast<uint8_t>(text[pos])];
    for (size_t at = pos + 1; node != kNone; ++at) {
      if (nodes_[node].value >= 0) visit(at - pos, nodes_[node].value);
      if (at >= text.size()) return;
      node = child(node, static_cast<uint8_t>(text[at]));
    }
  }
  // Length of the longest entry that text[pos...] begins with, 0 when there is none; sets `value`.
  size_t longest_prefix(std::string_view text, size_t pos, int32_t& value) const {
    size_t longest = 0;
    for_each_prefix(text, pos, [&](size_t length, int32_t v) {
      longest = length;
      value = v;
    });
    return longest;
  }
  bool empty() const { return nodes_.empty(); }

 private:
  static constexpr int32_t kNone = -1;
  struct Node {
    int32_t first_child = 0;   // children lie side by side, in the order of their bytes
    int32_t value = kNone;
    uint16_t num_children = 0;
    uint8_t byte = 0;
  };
  int32_t child(int32_t node, uint8_t byte) const {
    const Node& n = nodes_[node];
    for (int32_t i = n.first_child, end = i + n.num_children; i < end; ++i) {
      if (nodes_[i].byte >= byte) return nodes_[i].byte == byte ? i : kNone;
    }
    return kNone;
  }

  std::array<int32_t, 256> root_;
  std::vector<Node> nodes_;
};

}  // namespace tutti

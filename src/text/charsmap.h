// The precompiled character rules of SentencePiece normalisers: "what the text begins with" -> "what it becomes". Const
// and thread-safe once built.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class Charsmap {
 public:
  Charsmap() = default;  // no rules
  // Throws ConfigError naming `source` when the rules are damaged. An empty `data` holds no rules.
  Charsmap(std::string_view data, const std::string& source);

  // Calls visit(length, replacement) for each rule that text[pos...] begins with, the shortest first.
  template <typename Visit>
  void for_each_rule(std::string_view text, size_t pos, Visit visit) const {
    if (units_.empty()) return;
    size_t node = offset(units_[0]);
    for (size_t at = pos; at < text.size(); ++at) {
      const auto byte = static_cast<uint8_t>(text[at]);
      node ^= byte;
      if (node >= units_.size() || label(units_[node]) != byte) return;
      const uint32_t unit = units_[node];
      node ^= offset(unit);
      if (!has_leaf(unit) || node >= units_.size()) continue;
      const uint32_t start = value(units_[node]);
      if (start < replacements_.size()) visit(at - pos + 1, std::string_view(replacements_.c_str() + start));
    }
  }

 private:
  // One unit of a Darts-clone double array.
  static constexpr uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xff); }
  static constexpr uint32_t value(uint32_t unit) { return unit & ~(1u << 31); }
  static constexpr bool has_leaf(uint32_t unit) { return (unit >> 8) & 1; }
  static constexpr uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

  std::vector<uint32_t> units_;  // a double-array trie of what is replaced
  std::string replacements_;     // NUL-terminated results; a leaf holds the offset of its own
};

}  // namespace tutti

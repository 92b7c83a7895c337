#include "text/sentencepiece_normalizer.h"

#include <cstring>

#include "base/error.h"
#include "text/unicode.h"

namespace tutti {
namespace {

// One unit of a Darts-clone double array.
constexpr uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xff); }
constexpr uint32_t value(uint32_t unit) { return unit & ~(1u << 31); }
constexpr bool has_leaf(uint32_t unit) { return (unit >> 8) & 1; }
constexpr uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 1u << 9) >> 6); }

}  // namespace

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceModel& model, const ByteTrie& user_defined,
                                                 const std::string& source)
    : add_dummy_prefix_(model.add_dummy_prefix),
      remove_extra_whitespaces_(model.remove_extra_whitespaces),
      escape_whitespaces_(model.escape_whitespaces),
      whitespace_as_suffix_(model.whitespace_as_suffix),
      user_defined_(user_defined) {
  const std::string& map = model.charsmap;
  if (map.empty()) return;
  uint32_t trie_size = 0;
  if (map.size() >= sizeof trie_size) std::memcpy(&trie_size, map.data(), sizeof trie_size);
  if (map.size() <= sizeof trie_size || trie_size == 0 || trie_size % sizeof(uint32_t) != 0 ||
      trie_size >= map.size() - sizeof trie_size) {
    throw ConfigError(source + ": precompiled_charsmap of " + std::to_string(map.size()) +
                      " bytes is damaged: its trie is said to be " + std::to_string(trie_size) + " bytes");
  }
  units_.resize(trie_size / sizeof(uint32_t));
  std::memcpy(units_.data(), map.data() + sizeof trie_size, trie_size);
  replacements_ = map.substr(sizeof trie_size + trie_size);
  if (replacements_.back() != '\0' || !valid_utf8(replacements_)) {
    throw ConfigError(source + ": precompiled_charsmap is damaged: its results are not UTF-8 that ends with a NUL");
  }
}

size_t SentencePieceNormalizer::longest_rule(std::string_view text, size_t pos, std::string_view& replacement) const {
  if (units_.empty()) return 0;
  size_t longest = 0;
  uint32_t found = 0;
  size_t node = offset(units_[0]);
  for (size_t at = pos; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (has_leaf(unit) && node < units_.size()) {
      longest = at - pos + 1;
      found = value(units_[node]);
    }
  }
  if (longest == 0 || found >= replacements_.size()) return 0;
  replacement = replacements_.c_str() + found;
  return longest;
}

SentencePieceNormalizer::Step SentencePieceNormalizer::step(std::string_view text, size_t pos) const {
  int32_t id;
  const size_t defined = user_defined_.longest_prefix(text, pos, id);
  if (defined > 0) return {text.substr(pos, defined), defined};
  std::string_view replacement;
  const size_t rule = longest_rule(text, pos, replacement);
  if (rule > 0) return {replacement, rule};
  const size_t length = utf8_length(text[pos]);
  return {text.substr(pos, length), length};
}

std::string SentencePieceNormalizer::apply(std::string_view text) const {
  size_t pos = 0;
  while (remove_extra_whitespaces_ && pos < text.size()) {
    const Step s = step(text, pos);
    if (s.text != " ") break;
    pos += s.consumed;
  }
  std::string out;
  if (pos == text.size()) return out;
  out.reserve(text.size() + text.size() / 2 + 8);
  const std::string_view space = escape_whitespaces_ ? kMetaspace : std::string_view(" ");
  if (add_dummy_prefix_ && !whitespace_as_suffix_) out += space;
  bool after_space = remove_extra_whitespaces_;
  while (pos < text.size()) {
    // Plain ASCII without rules is the usual case.
    Step s = step(text, pos);
    pos += s.consumed;
    while (after_space && s.text.starts_with(' ')) s.text.remove_prefix(1);
    if (s.text.empty()) continue;
    for (const char c : s.text) {
      if (c == ' ') {
        out += space;
      } else {
        out += c;
      }
    }
    after_space = remove_extra_whitespaces_ && s.text.ends_with(' ');
  }
  while (remove_extra_whitespaces_ && out.ends_with(space)) out.resize(out.size() - space.size());
  if (add_dummy_prefix_ && whitespace_as_suffix_) out += space;
  return out;
}

}  // namespace tutti

#include "text/added_tokens.h"

#include "base/error.h"
#include "text/unicode.h"

namespace tutti {
namespace {

constexpr size_t kMaxPattern = 4096;

bool is_space(char32_t cp) { return CharClasses::get()[cp] & char_class::kSpace; }

// \w: letters and other alphabetic characters, marks, decimal digits, connectors and joiners.
bool is_word(char32_t cp) {
  const Category c = category(cp);
  const bool circled = (cp >= 0x24b6 && cp <= 0x24e9) || (cp >= 0x1f130 && cp <= 0x1f149) ||
                       (cp >= 0x1f150 && cp <= 0x1f169) || (cp >= 0x1f170 && cp <= 0x1f189);
  return c <= Category::kNl || c == Category::kPc || circled || cp == 0x200c || cp == 0x200d;
}

size_t previous_start(std::string_view text, size_t pos) {
  do --pos;
  while (pos > 0 && (static_cast<uint8_t>(text[pos]) & 0xc0) == 0x80);
  return pos;
}

}  // namespace

AddedTokens::AddedTokens() : nodes_(1) {}

void AddedTokens::add(std::string_view pattern, AddedToken token) {
  if (pattern.empty()) return;
  if (pattern.size() > kMaxPattern) {
    throw ConfigError("added token " + std::to_string(token.id) + " is " + std::to_string(pattern.size()) +
                      " bytes long; at most " + std::to_string(kMaxPattern) + " are accepted");
  }
  int32_t node = 0;
  for (const char c : pattern) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = -1;
    for (const auto& [b, child] : nodes_[node].children) {
      if (b == byte) next = child;
    }
    if (next == -1) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_[node].children.emplace_back(byte, next);
      nodes_.emplace_back();
      if (node == 0) first_[byte] = next;
    }
    node = next;
  }
  if (nodes_[node].token != -1) return;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

bool AddedTokens::find(std::string_view text, size_t from, Match& match) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    int32_t node = first_[static_cast<uint8_t>(text[begin])];
    if (node == 0) continue;
    match.token = nullptr;
    for (size_t end = begin + 1;; ++end) {
      if (nodes_[node].token != -1) match = {begin, end, &tokens_[nodes_[node].token]};
      if (end >= text.size()) break;
      int32_t next = -1;
      for (const auto& [byte, child] : nodes_[node].children) {
        if (byte == static_cast<uint8_t>(text[end])) {
          next = child;
          break;
        }
      }
      if (next == -1) break;
      node = next;
    }
    if (match.token != nullptr) return true;
  }
  return false;
}

bool AddedTokens::fits(const AddedToken& token, std::string_view text, const Match& match) {
  if (!token.single_word) return true;
  size_t length;
  const bool open_left =
      match.begin == 0 || !is_word(decode_utf8(text, previous_start(text, match.begin), length));
  const bool open_right = match.end >= text.size() || !is_word(decode_utf8(text, match.end, length));
  return open_left && open_right;
}

size_t AddedTokens::spaces_before(std::string_view text, size_t pos) {
  size_t length;
  while (pos > 0) {
    const size_t before = previous_start(text, pos);
    if (!is_space(decode_utf8(text, before, length))) break;
    pos = before;
  }
  return pos;
}

size_t AddedTokens::spaces_after(std::string_view text, size_t pos) {
  size_t length;
  while (pos < text.size() && is_space(decode_utf8(text, pos, length))) pos += length;
  return pos;
}

}  // namespace tutti

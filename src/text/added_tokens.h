// Tokens that are found in the text before anything else: special tokens and those a user added. Filled once, const and
// thread-safe afterwards.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace tutti {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      // left out of decoded text when asked; not parsed when the caller says so
  bool normalized = false;   // looked for in the normalised text
  bool single_word = false;  // only between characters that are not part of a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
};

class AddedTokens {
 public:
  AddedTokens();
  // Looks for `pattern` (the content, or its normalised form). Throws ConfigError when it is too long.
  void add(std::string_view pattern, AddedToken token);
  bool empty() const { return tokens_.empty(); }

  // Cuts text into what is an added token and what is not, the leftmost and of those the longest token first. Special
  // tokens count only with `parse_special`. Calls on_text(begin, end) and on_token(id), in order.
  template <typename OnText, typename OnToken>
  void split(std::string_view text, bool parse_special, OnText on_text, OnToken on_token) const {
    size_t copied = 0;
    for (size_t pos = 0; pos < text.size();) {
      Match match;
      if (!find(text, pos, match)) break;
      pos = match.end;
      const AddedToken& token = *match.token;
      if ((token.special && !parse_special) || !fits(token, text, match)) continue;
      if (token.lstrip) match.begin = std::max(spaces_before(text, match.begin), copied);
      if (token.rstrip) match.end = spaces_after(text, match.end);
      if (copied < match.begin) on_text(copied, match.begin);
      on_token(token.id);
      copied = match.end;
    }
    if (copied < text.size()) on_text(copied, text.size());
  }

 private:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    const AddedToken* token = nullptr;
  };
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> children;
    int32_t token = -1;
  };
  bool find(std::string_view text, size_t from, Match& match) const;
  static bool fits(const AddedToken& token, std::string_view text, const Match& match);
  static size_t spaces_before(std::string_view text, size_t pos);
  static size_t spaces_after(std::string_view text, size_t pos);

  std::vector<Node> nodes_;                // a trie of bytes; node 0 is the root
  std::array<int32_t, 256> first_{};       // the root's children, 0: none
  std::vector<AddedToken> tokens_;
};

}  // namespace tutti

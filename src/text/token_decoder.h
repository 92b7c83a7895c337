// Token ids back to text, for every kind of tokenizer. Const and thread-safe once built.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace tutti {

class TokenDecoder {
 public:
  // What becomes of bytes that are no UTF-8.
  enum class InvalidBytes : uint8_t {
    kReplaced,      // each invalid part of the whole text becomes one U+FFFD (byte-level tokens)
    kRunReplaced,   // a run of byte tokens with anything invalid becomes one U+FFFD a byte (ByteFallback)
    kByteReplaced,  // each byte of a byte token that belongs to no character becomes one U+FFFD (SentencePiece)
  };
  struct Rules {
    InvalidBytes invalid = InvalidBytes::kReplaced;
    int leading_spaces = 0;             // dropped from the first token that has text, or from the whole (kRunReplaced)
    bool leading_spaces_again = false;  // ... and from the next one, until there is text
    bool first_without_spaces = false;  // every space of the first token is dropped
    bool spaces_between = false;        // tokens are joined by a space
  };
  struct Token {
    std::string text;
    bool special = false;
    bool byte = false;    // a byte token: its text is that byte
    bool unknown = false; // keeps its leading spaces
  };

  TokenDecoder(const std::vector<Token>& tokens, const Rules& rules);

  std::string decode(const std::vector<TokenId>& ids, bool skip_special) const;
  std::string_view bytes(TokenId id) const { return texts_[id]; }
  bool special(TokenId id) const { return in_range(id) && (flags_[id] & kSpecial) != 0; }
  // Spaces that the tokens at the start of a text lose, until there is text.
  int leading_spaces() const;

 private:
  static constexpr uint8_t kSpecial = 1, kByte = 2, kUnknown = 4;
  bool in_range(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < flags_.size(); }
  void flush_bytes(std::string& run, std::string& out) const;

  TokenStrings texts_;
  std::vector<uint8_t> flags_;
  Rules rules_;
};

}  // namespace tutti

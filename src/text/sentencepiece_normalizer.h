// The normaliser of a SentencePiece model: precompiled character rules, white space, dummy prefix. Const and
// thread-safe once built.
#pragma once

#include <string>
#include <string_view>

#include "text/byte_trie.h"
#include "text/charsmap.h"
#include "text/sentencepiece_model.h"

namespace tutti {

class SentencePieceNormalizer {
 public:
  // `user_defined` are the pieces that stay as they are. Throws ConfigError when the rules are damaged.
  SentencePieceNormalizer(const SentencePieceModel& model, const ByteTrie& user_defined, const std::string& source);

  std::string apply(std::string_view text) const;

 private:
  struct Step {
    std::string_view text;   // what the beginning of the input becomes
    size_t consumed;
  };
  Step step(std::string_view text, size_t pos) const;

  bool add_dummy_prefix_, remove_extra_whitespaces_, escape_whitespaces_, whitespace_as_suffix_;
  const ByteTrie& user_defined_;
  Charsmap charsmap_;
};

}  // namespace tutti

// What turns one piece of text into token ids: byte-pair encoding or unigram. Const and thread-safe once built.
#pragma once

#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace tutti {

class PieceModel {
 public:
  virtual ~PieceModel() = default;
  // Appends the ids of `piece`, which is valid UTF-8.
  virtual void encode(std::string_view piece, std::vector<TokenId>& out) const = 0;
};

}  // namespace tutti

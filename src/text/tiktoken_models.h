// What rank files do not say: the regex and the special tokens of the models that use them. Stateless.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace tutti {

struct TiktokenModel {
  std::string regex;
  std::vector<std::pair<std::string, TokenId>> specials;
  std::optional<TokenId> bos_id, eos_id;
  bool add_bos = false;
  bool nfc = false;
};

// By the number of ranks. Throws ConfigError with the known numbers.
TiktokenModel tiktoken_model(size_t num_ranks, const std::string& source);

// The `count` special tokens of a tekken.json that does not list its own.
std::vector<std::string> tekken_special_tokens(TokenId count);

}  // namespace tutti

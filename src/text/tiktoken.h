// Tokenizers from tiktoken rank files ("base64 rank" lines) and Mistral's tekken.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace tutti {

// Whether the text begins with a line "base64 rank".
bool looks_like_rank_file(std::string_view contents);

// The number of ranks says whose file it is (Llama 3, Llama 4, Qwen, cl100k, o200k), and with that the regex and the
// special tokens. Throws IoError / ConfigError naming `source`.
std::unique_ptr<Tokenizer> tokenizer_from_ranks(std::string_view contents, const std::string& source);

std::unique_ptr<Tokenizer> tokenizer_from_tekken(std::string_view contents, const std::string& source);

}  // namespace tutti

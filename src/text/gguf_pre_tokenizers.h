// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre. Stateless.
#pragma once

#include <string>
#include <vector>

namespace tutti {

// The regexes that cut the text one after the other, as llama.cpp's names mean them. Throws ConfigError with the known
// names when `name` is not among them.
std::vector<std::string> gguf_pre_tokenizer_regexes(const std::string& name);

// What else the name says: whole words of the vocabulary need no merges; a BOS is the default; text is in NFC.
struct GgufBpeTraits {
  bool ignore_merges = false;
  bool add_bos = false;
  bool nfc = false;
};
GgufBpeTraits gguf_bpe_traits(const std::string& name);

}  // namespace tutti

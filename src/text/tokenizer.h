// Text to token ids and back. Built once from a model's files; const and thread-safe afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tutti {

using TokenId = int32_t;

struct EncodeOptions {
  bool add_special_tokens = true;   // BOS / EOS as the model's post-processor says
  bool parse_special_tokens = true; // "<|im_start|>" in the text becomes its id
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // From a Hugging Face tokenizer.json (and tokenizer_config.json beside it), a SentencePiece tokenizer.model, a
  // tiktoken rank file or Mistral's tekken.json in `folder`. Throws IoError / ConfigError naming the file and the part
  // that is not understood.
  static std::unique_ptr<Tokenizer> from_folder(const std::string& folder);
  // From the tokenizer.ggml.* keys of GGUF metadata.
  static std::unique_ptr<Tokenizer> from_gguf(const Json& metadata);

  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  // Valid UTF-8: bytes that are no character become U+FFFD. Ids outside the vocabulary are skipped.
  virtual std::string decode(const std::vector<TokenId>& ids, bool skip_special_tokens = true) const = 0;

  virtual int64_t vocab_size() const = 0;
  // The token as the vocabulary writes it ("Ġhello", "▁hello", "<|im_end|>"); "" for ids outside the vocabulary.
  virtual std::string token(TokenId id) const = 0;
  virtual std::optional<TokenId> token_id(std::string_view token) const = 0;
  virtual bool is_special(TokenId id) const = 0;

  // What the token adds to running text: maybe a part of a character only. "" for ids outside the vocabulary. The view
  // lives as long as the tokenizer.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  // How many tokens at the start of a text, before there is any text, lose a leading space ("▁") in decode(): it is the
  // one that a dummy prefix added.
  virtual int leading_spaces_dropped() const = 0;

  std::optional<TokenId> bos_id() const { return bos_id_; }
  std::optional<TokenId> eos_id() const { return eos_id_; }

 protected:
  std::optional<TokenId> bos_id_;
  std::optional<TokenId> eos_id_;
};

// What each token adds to a text, by id; "" for special ones.
std::vector<std::string> token_texts(const Tokenizer& tokenizer);

}  // namespace tutti

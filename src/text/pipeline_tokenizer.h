// The tokenizer of tokenizer.json, GGUF "gpt2" and tiktoken files: added tokens, normaliser, pre-tokenizer, model,
// post-processor and decoder, one after the other. Const and thread-safe once built.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/piece_model.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace tutti {

class PipelineTokenizer : public Tokenizer {
 public:
  // What the file readers fill in.
  struct Parts {
    std::vector<std::string> tokens;           // as the vocabulary writes them, by id; "" for holes
    std::vector<AddedToken> added;
    Normalizer normalizer;
    PreTokenizer pre_tokenizer;
    std::unique_ptr<PieceModel> model;
    std::vector<TokenId> prefix, suffix;       // BOS / EOS around a text
    std::vector<TokenDecoder::Token> decoded;  // by id
    TokenDecoder::Rules decode_rules;
    std::optional<TokenId> bos_id, eos_id;
  };
  explicit PipelineTokenizer(Parts parts);

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string decode(const std::vector<TokenId>& ids, bool skip_special_tokens) const override;
  int64_t vocab_size() const override { return tokens_.size(); }
  std::string token(TokenId id) const override { return std::string(tokens_[id]); }
  std::optional<TokenId> token_id(std::string_view token) const override;
  bool is_special(TokenId id) const override { return decoder_.special(id); }
  std::string_view token_bytes(TokenId id) const override { return decoder_.bytes(id); }
  int leading_spaces_dropped() const override { return decoder_.leading_spaces(); }

 private:
  void encode_words(std::string_view text, bool at_start, PreTokenized& work, std::vector<TokenId>& out) const;

  TokenStrings tokens_;
  TokenMap ids_;
  AddedTokens raw_added_;          // looked for in the text as it comes
  AddedTokens normalized_added_;   // looked for after the normaliser
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<PieceModel> model_;
  std::vector<TokenId> prefix_, suffix_;
  TokenDecoder decoder_;
};

// `text` when it is valid UTF-8, otherwise its repaired copy in `storage`. Throws InvalidRequest when it is too long.
std::string_view checked_text(std::string_view text, std::string& storage);

}  // namespace tutti

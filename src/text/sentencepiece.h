// The tokenizer of a SentencePiece model, from a tokenizer.model or from GGUF metadata of the kind "llama". Const and
// thread-safe once built.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_trie.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_normalizer.h"
#include "text/token_decoder.h"
#include "text/unigram.h"

namespace tutti {

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const SentencePieceModel& model, bool add_bos, bool add_eos, const std::string& source);

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string decode(const std::vector<TokenId>& ids, bool skip_special_tokens) const override;
  int64_t vocab_size() const override { return tokens_.size(); }
  std::string token(TokenId id) const override { return std::string(tokens_[id]); }
  std::optional<TokenId> token_id(std::string_view token) const override;
  bool is_special(TokenId id) const override { return decoder_->special(id); }
  std::string_view token_bytes(TokenId id) const override { return decoder_->bytes(id); }
  int leading_spaces_dropped() const override { return decoder_->leading_spaces(); }

 private:
  void build_bpe(const SentencePieceModel& model);
  void build_decoder(const SentencePieceModel& model);
  void encode_part(std::string_view text, std::vector<TokenId>& out) const;
  void encode_bpe(std::string_view normalized, std::vector<TokenId>& out) const;
  // An unknown part: its bytes' tokens, or one unknown token for a run of them.
  void add_unknown(std::string_view text, std::vector<TokenId>& out, bool& after_unknown) const;

  TokenStrings tokens_;
  TokenMap ids_;
  std::array<TokenId, 256> byte_ids_;
  bool byte_fallback_;
  TokenId unknown_id_ = 0;
  std::vector<bool> unused_;                 // by id
  AddedTokens controls_;
  ByteTrie user_defined_;
  std::unique_ptr<SentencePieceNormalizer> normalizer_;
  std::unique_ptr<BpeModel> bpe_;            // one of these two
  std::unique_ptr<SentencePieceUnigram> unigram_;
  std::unique_ptr<TokenDecoder> decoder_;
  bool add_bos_, add_eos_;
};

}  // namespace tutti

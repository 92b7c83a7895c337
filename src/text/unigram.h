// Unigram models: the most probable segmentation of a text. Const and thread-safe once built.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/piece_model.h"
#include "text/sentencepiece_model.h"
#include "text/vocab.h"

namespace tutti {

// A segment of a text with its id; a character without a piece carries the unknown id.
struct UnigramSegment {
  uint32_t begin, end;
  TokenId id;
};

// SentencePiece's model.
class SentencePieceUnigram {
 public:
  explicit SentencePieceUnigram(const SentencePieceModel& model);

  std::vector<UnigramSegment> segment(std::string_view text) const;

 private:
  ByteTrie trie_;                 // of normal and user-defined pieces
  std::vector<float> scores_;
  std::vector<bool> user_defined_;
  float unknown_score_ = 0;
  TokenId unknown_id_;
};

// The "Unigram" of a tokenizer.json, which counts in double precision and joins unknown neighbours.
class UnigramModel final : public PieceModel {
 public:
  // `tokens` and their log probabilities by id; of equal tokens the last counts. With `byte_fallback` an unknown stretch
  // becomes the tokens "<0x41>" of its bytes when there is one for each.
  UnigramModel(const std::vector<std::string>& tokens, std::vector<double> scores, TokenId unknown, bool byte_fallback);

  void encode(std::string_view piece, std::vector<TokenId>& out) const override;

 private:
  void encode_unknown(std::string_view text, std::vector<TokenId>& out) const;

  TokenMap ids_;
  ByteTrie trie_;
  std::vector<double> scores_;
  double unknown_score_;
  TokenId unknown_id_;
  std::array<TokenId, 256> byte_ids_;  // kNoToken without byte fallback
};

}  // namespace tutti

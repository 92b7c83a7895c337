// SentencePiece's unigram model: the most probable segmentation of a text. Const and thread-safe once built.
#pragma once

#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/sentencepiece_model.h"

namespace tutti {

class UnigramModel {
 public:
  explicit UnigramModel(const SentencePieceModel& model);

  // A segment of the text with its id; unknown characters carry the unknown id.
  struct Segment {
    uint32_t begin, end;
    TokenId id;
  };
  std::vector<Segment> segment(std::string_view text) const;

 private:
  ByteTrie trie_;                 // of normal and user-defined pieces
  std::vector<float> scores_;
  std::vector<bool> user_defined_;
  float unknown_score_ = 0;
  float max_score_ = 0;
  TokenId unknown_id_;
};

}  // namespace tutti

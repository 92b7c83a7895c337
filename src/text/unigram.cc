#include "text/unigram.h"

#include <algorithm>
#include <cfloat>

#include "text/unicode.h"

namespace tutti {
namespace {

constexpr float kUnknownPenalty = 10.0f;

using PieceType = SentencePieceModel::PieceType;

ByteTrie trie_of(const SentencePieceModel& model) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const PieceType type = model.pieces[i].type;
    if (type == PieceType::kNormal || type == PieceType::kUserDefined) {
      entries.emplace_back(model.pieces[i].text, static_cast<int32_t>(i));
    }
  }
  return ByteTrie(std::move(entries));
}

}  // namespace

UnigramModel::UnigramModel(const SentencePieceModel& model) : trie_(trie_of(model)), unknown_id_(0) {
  float min_score = FLT_MAX;
  max_score_ = FLT_MIN;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model.pieces[i];
    scores_.push_back(piece.score);
    user_defined_.push_back(piece.type == PieceType::kUserDefined);
    if (piece.type == PieceType::kUnknown) unknown_id_ = static_cast<TokenId>(i);
    if (piece.type != PieceType::kNormal) continue;
    min_score = std::min(min_score, piece.score);
    max_score_ = std::max(max_score_, piece.score);
  }
  unknown_score_ = min_score - kUnknownPenalty;
}

// Viterbi from left to right, rounded like the reference, so that near ties go the same way.
std::vector<UnigramModel::Segment> UnigramModel::segment(std::string_view text) const {
  struct Best {
    float score = 0;
    int32_t begin = -1;
    TokenId id = 0;
  };
  std::vector<Best> best(text.size() + 1);
  for (size_t begin = 0; begin < text.size();) {
    const float before = best[begin].score;
    const size_t character = std::min(utf8_length(text[begin]), text.size() - begin);
    bool single = false;
    const auto offer = [&](size_t length, TokenId id, double own_score) {
      const auto score = static_cast<float>(own_score + before);
      Best& target = best[begin + length];
      if (target.begin == -1 || score > target.score) {
        target = {score, static_cast<int32_t>(begin), id};
      }
    };
    trie_.for_each_prefix(text, begin, [&](size_t length, int32_t id) {
      // A user-defined piece always wins.
      offer(length, id, user_defined_[id] ? static_cast<float>(length) * max_score_ - 0.1 : scores_[id]);
      single = single || length == character;
    });
    if (!single) offer(character, unknown_id_, unknown_score_);
    begin += character;
  }
  std::vector<Segment> out;
  for (auto end = static_cast<int32_t>(text.size()); end > 0; end = best[end].begin) {
    out.push_back({static_cast<uint32_t>(best[end].begin), static_cast<uint32_t>(end), best[end].id});
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace tutti

#include "text/unigram.h"

#include <algorithm>
#include <cfloat>
#include <cstdio>

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

ByteTrie trie_of(const TokenMap& ids, const std::vector<std::string>& tokens) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (const std::string& token : tokens) {
    if (!token.empty()) entries.emplace_back(token, ids.find(token));
  }
  return ByteTrie(std::move(entries));
}

// Viterbi from left to right. Sums are rounded to Score as in the reference, so that near ties go the same way.
// score_of(id, length) is a piece's own score.
template <typename Score, typename ScoreOf>
std::vector<UnigramSegment> best_path(const ByteTrie& trie, std::string_view text, ScoreOf score_of,
                                      double unknown_score, TokenId unknown) {
  struct Best {
    Score score = 0;
    int32_t begin = -1;
    TokenId id = 0;
  };
  std::vector<Best> best(text.size() + 1);
  for (size_t begin = 0; begin < text.size();) {
    const Score before = best[begin].score;
    const size_t character = std::min(utf8_length(text[begin]), text.size() - begin);
    bool single = false;
    const auto offer = [&](size_t length, TokenId id, double own_score) {
      const auto score = static_cast<Score>(own_score + before);
      Best& target = best[begin + length];
      if (target.begin == -1 || score > target.score) {
        target = {score, static_cast<int32_t>(begin), id};
      }
    };
    trie.for_each_prefix(text, begin, [&](size_t length, int32_t id) {
      offer(length, id, score_of(id, length));
      single = single || length == character;
    });
    if (!single) offer(character, unknown, unknown_score);
    begin += character;
  }
  std::vector<UnigramSegment> out;
  for (auto end = static_cast<int32_t>(text.size()); end > 0; end = best[end].begin) {
    out.push_back({static_cast<uint32_t>(best[end].begin), static_cast<uint32_t>(end), best[end].id});
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

SentencePieceUnigram::SentencePieceUnigram(const SentencePieceModel& model) : trie_(trie_of(model)), unknown_id_(0) {
  float min_score = FLT_MAX;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model.pieces[i];
    scores_.push_back(piece.score);
    user_defined_.push_back(piece.type == PieceType::kUserDefined);
    if (piece.type == PieceType::kUnknown) unknown_id_ = static_cast<TokenId>(i);
    if (piece.type != PieceType::kNormal) continue;
    min_score = std::min(min_score, piece.score);
  }
  unknown_score_ = min_score - kUnknownPenalty;
}

std::vector<UnigramSegment> SentencePieceUnigram::segment(std::string_view text) const {
  // A user-defined piece always wins, a long one over short ones.
  const auto score_of = [&](int32_t id, size_t length) {
    return user_defined_[id] ? static_cast<float>(0.1 * static_cast<double>(length - 1)) : scores_[id];
  };
  return best_path<float>(trie_, text, score_of, unknown_score_, unknown_id_);
}

UnigramModel::UnigramModel(const std::vector<std::string>& tokens, std::vector<double> scores, TokenId unknown,
                           bool byte_fallback)
    : ids_(tokens.size()), scores_(std::move(scores)), unknown_id_(unknown) {
  for (size_t id = tokens.size(); id-- > 0;) {
    if (!tokens[id].empty()) ids_.insert(tokens[id], static_cast<TokenId>(id));
  }
  trie_ = trie_of(ids_, tokens);
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  byte_ids_.fill(kNoToken);
  for (int b = 0; byte_fallback && b < 256; ++b) {
    char spelled[8];
    std::snprintf(spelled, sizeof spelled, "<0x%02X>", b);
    byte_ids_[b] = ids_.find(spelled);
  }
}

void UnigramModel::encode(std::string_view piece, std::vector<TokenId>& out) const {
  const auto score_of = [&](int32_t id, size_t) { return scores_[id]; };
  const auto path = best_path<double>(trie_, piece, score_of, unknown_score_, unknown_id_);
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i].id != unknown_id_) {
      out.push_back(path[i].id);
      continue;
    }
    const uint32_t begin = path[i].begin;
    while (i + 1 < path.size() && path[i + 1].id == unknown_id_) ++i;
    encode_unknown(piece.substr(begin, path[i].end - begin), out);
  }
}

void UnigramModel::encode_unknown(std::string_view text, std::vector<TokenId>& out) const {
  // Unknown characters may spell a token that is less probable than they are.
  const TokenId id = ids_.find(text);
  const auto has_token = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] != kNoToken; };
  if (id != kNoToken || !std::all_of(text.begin(), text.end(), has_token)) {
    out.push_back(id != kNoToken ? id : unknown_id_);
    return;
  }
  for (const char c : text) out.push_back(byte_ids_[static_cast<uint8_t>(c)]);
}

}  // namespace tutti

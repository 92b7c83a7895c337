// A byte-pair encoding model: one piece of text (a word) to token ids. Built once, const and thread-safe afterwards.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/merges.h"
#include "text/piece_model.h"
#include "text/vocab.h"

namespace tutti {

class BpeModel final : public PieceModel {
 public:
  struct Options {
    bool bytes = true;             // symbols are bytes; otherwise characters
    bool ignore_merges = false;    // a piece that is in the vocabulary needs no merges
    bool byte_fallback = false;    // a character that is not in the vocabulary becomes its bytes' tokens "<0x41>"
    bool fuse_unknown = false;     // neighbours that are unknown become one unknown token
    bool keep_unknown = false;     // an unknown character becomes the symbol number_of_tokens + code point
    std::optional<TokenId> unknown;
    std::vector<TokenId> unused;   // ids that are taken apart again when merging ends with them
  };

  // `tokens` are what merging may produce, as bytes (not in the byte-level alphabet); "" is no token.
  BpeModel(const std::vector<std::string>& tokens, MergeTable merges, const Options& options);

  void encode(std::string_view piece, std::vector<TokenId>& out) const override;

 private:
  static constexpr size_t kOnStack = 64;
  void encode_part(std::string_view piece, std::vector<TokenId>& out) const;
  size_t symbols_of(std::string_view piece, TokenId* symbols) const;
  TokenId single(std::string_view piece) const;
  void merge(std::span<TokenId> symbols, std::vector<TokenId>& out) const;
  void take_apart(TokenId id, const MergeTable::Origins& origins, std::vector<TokenId>& out) const;
  bool joins_across_metaspace(const std::vector<std::string>& tokens) const;

  Options options_;
  MergeTable merges_;
  TokenMap ids_;
  std::array<TokenId, 256> byte_ids_;     // of "a" (bytes) or "<0x61>" (byte fallback)
  std::vector<bool> unused_;              // by id; empty when there are none
  std::vector<bool> direct_;              // merging the token's own text gives the token
  bool cut_at_metaspace_ = false;         // no merge crosses the border before a "▁" that ends a run of others
};

// Merges that join every two tokens whose concatenation is a token too, ranked by the result: the rule of tiktoken and
// SentencePiece. `rank(id)` gives a result's rank, or none for ids that are never joined; `parts` maps a text to the id
// (or symbol) that stands for it.
template <typename Rank>
MergeTable merges_from_ranks(const std::vector<std::string>& tokens, const TokenMap& parts, Rank rank) {
  MergeTable merges(tokens.size() * 3);
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::optional<uint32_t> r = rank(static_cast<TokenId>(id));
    if (!r) continue;
    const std::string_view token = tokens[id];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const TokenId left = parts.find(token.substr(0, cut));
      const TokenId right = left == kNoToken ? kNoToken : parts.find(token.substr(cut));
      if (right != kNoToken) merges.insert(left, right, {*r, static_cast<TokenId>(id)});
    }
  }
  return merges;
}

}  // namespace tutti

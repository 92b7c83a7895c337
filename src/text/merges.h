// Byte-pair merging: the pairs that join, in which order, and the algorithm that applies them to one piece of text.
// Filled once, const and thread-safe afterwards. Shared by every BPE (tokenizer.json, GGUF, SentencePiece, tiktoken).
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace tutti {

struct Merge {
  uint32_t rank;   // lower ranks join first; equal ranks from left to right
  TokenId joined;
};

class MergeTable {
 public:
  // Which pair an id was last about to be made of, for ids that may not stay in the result (SentencePiece "unused").
  using Origins = std::unordered_map<TokenId, std::pair<TokenId, TokenId>>;

  explicit MergeTable(size_t expected = 0);
  // The first rank given for a pair stays. False when the pair was there.
  bool insert(TokenId left, TokenId right, Merge merge);
  size_t size() const { return size_; }

  const Merge* find(TokenId left, TokenId right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = index_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].merge;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }

  // Joins neighbours of `symbols` until no pair is in the table and appends the result to `out`. Overwrites `symbols`.
  // Time n log n, and less for short pieces. Fills `origins` when given.
  void apply(std::span<TokenId> symbols, std::vector<TokenId>& out, Origins* origins = nullptr) const;

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{0, 0};
  };
  static uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t index_of(uint64_t key) const { return (key * 0x9e3779b97f4a7c15ull) >> shift_; }
  void grow();
  void apply_short(std::span<TokenId> symbols, std::vector<TokenId>& out) const;
  void apply_long(std::span<TokenId> symbols, std::vector<TokenId>& out, Origins* origins) const;

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
  size_t size_ = 0;
};

}  // namespace tutti

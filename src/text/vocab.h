// Byte strings with ids, both ways: the vocabulary of a tokenizer. Filled once, const and thread-safe afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace tutti {

inline constexpr TokenId kNoToken = -1;
inline constexpr int64_t kMaxVocab = 4'000'000;  // ids that a file may use
inline constexpr size_t kMaxTokenBytes = 65'536;

// One byte string for each id. Ids may have holes, which read as "".
class TokenStrings {
 public:
  // The strings of ids 0, 1, ...
  explicit TokenStrings(const std::vector<std::string>& strings = {});
  int64_t size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  std::string_view operator[](TokenId id) const {
    if (id < 0 || id >= size()) return {};
    return std::string_view(blob_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
  }

 private:
  std::string blob_;
  std::vector<uint32_t> offsets_;
};

// Byte string -> id, by open addressing. Keys live in the map itself.
class TokenMap {
 public:
  TokenMap() : TokenMap(0) {}
  explicit TokenMap(size_t expected);
  // The first id given for a key stays. False when the key was there.
  bool insert(std::string_view key, TokenId id);
  TokenId find(std::string_view key) const;
  size_t size() const { return size_; }
  size_t longest() const { return longest_; }

 private:
  struct Slot {
    uint32_t hash = 0;
    TokenId id = kNoToken;
    uint32_t offset = 0;
    uint32_t length = 0;
  };
  void grow();

  std::vector<Slot> slots_;
  std::string keys_;
  size_t mask_ = 0;
  size_t size_ = 0;
  size_t longest_ = 0;
};

}  // namespace tutti

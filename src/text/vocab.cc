#include "text/vocab.h"

#include <bit>
#include <cstring>

#include "base/error.h"

namespace tutti {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t load(const char* p, size_t n) {
  uint64_t value = 0;
  std::memcpy(&value, p, n);
  return value;
}

constexpr uint64_t kSeed0 = 0x9e3779b97f4a7c15ull, kSeed1 = 0xc2b2ae3d27d4eb4full;

// Multiply-and-fold over 16 bytes at a time.
uint32_t hash_bytes(std::string_view key) {
  const char* p = key.data();
  size_t n = key.size();
  uint64_t h = kSeed0 ^ n;
  for (; n > 16; p += 16, n -= 16) h = mix(h ^ load(p, 8), kSeed1 ^ load(p + 8, 8));
  uint64_t a = 0, b = 0;
  if (n >= 8) {
    a = load(p, 8);
    b = load(p + n - 8, 8);
  } else if (n >= 4) {
    a = load(p, 4);
    b = load(p + n - 4, 4);
  } else if (n > 0) {
    a = static_cast<uint8_t>(p[0]) | static_cast<uint64_t>(static_cast<uint8_t>(p[n / 2])) << 8 |
        static_cast<uint64_t>(static_cast<uint8_t>(p[n - 1])) << 16;
  }
  h = mix(h ^ a, kSeed1 ^ b);
  return static_cast<uint32_t>(h ^ h >> 32);
}

}  // namespace

TokenStrings::TokenStrings(const std::vector<std::string>& strings) {
  size_t total = 0;
  for (const std::string& s : strings) total += s.size();
  if (total > UINT32_MAX) throw ConfigError("the vocabulary's tokens are over 4 GiB together");
  blob_.reserve(total);
  offsets_.reserve(strings.size() + 1);
  offsets_.push_back(0);
  for (const std::string& s : strings) {
    blob_ += s;
    offsets_.push_back(static_cast<uint32_t>(blob_.size()));
  }
}

TokenMap::TokenMap(size_t expected)
    : slots_(std::bit_ceil(expected * 2 + 16)), mask_(slots_.size() - 1) {}

bool TokenMap::insert(std::string_view key, TokenId id) {
  if (size_ * 2 >= slots_.size()) grow();
  const uint32_t hash = hash_bytes(key);
  size_t i = hash & mask_;
  for (; slots_[i].id != kNoToken; i = (i + 1) & mask_) {
    const Slot& s = slots_[i];
    if (s.hash == hash && std::string_view(keys_).substr(s.offset, s.length) == key) return false;
  }
  if (keys_.size() + key.size() > UINT32_MAX) throw ConfigError("the vocabulary's tokens are over 4 GiB together");
  slots_[i] = {hash, id, static_cast<uint32_t>(keys_.size()), static_cast<uint32_t>(key.size())};
  keys_ += key;
  longest_ = std::max(longest_, key.size());
  ++size_;
  return true;
}

TokenId TokenMap::find(std::string_view key) const {
  if (key.size() > longest_) return kNoToken;
  const uint32_t hash = hash_bytes(key);
  for (size_t i = hash & mask_; slots_[i].id != kNoToken; i = (i + 1) & mask_) {
    const Slot& s = slots_[i];
    if (s.hash == hash && s.length == key.size() &&
        std::memcmp(keys_.data() + s.offset, key.data(), key.size()) == 0) {
      return s.id;
    }
  }
  return kNoToken;
}

void TokenMap::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  for (const Slot& s : old) {
    if (s.id == kNoToken) continue;
    size_t i = s.hash & mask_;
    while (slots_[i].id != kNoToken) i = (i + 1) & mask_;
    slots_[i] = s;
  }
}

}  // namespace tutti

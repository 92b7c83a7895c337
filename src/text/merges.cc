#include "text/merges.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace tutti {
namespace {

constexpr size_t kShort = 40;  // symbols up to which scanning for the lowest rank beats a heap
constexpr uint32_t kNoRank = UINT32_MAX;

}  // namespace

MergeTable::MergeTable(size_t expected) : slots_(std::bit_ceil(expected * 2 + 16)) {
  mask_ = slots_.size() - 1;
  shift_ = 64 - std::countr_zero(slots_.size());
}

bool MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  if (size_ * 2 >= slots_.size()) grow();
  const uint64_t key = key_of(left, right);
  size_t i = index_of(key);
  for (; slots_[i].key != kEmpty; i = (i + 1) & mask_) {
    if (slots_[i].key == key) return false;
  }
  slots_[i] = {key, merge};
  ++size_;
  return true;
}

void MergeTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  --shift_;
  for (const Slot& s : old) {
    if (s.key == kEmpty) continue;
    size_t i = index_of(s.key);
    while (slots_[i].key != kEmpty) i = (i + 1) & mask_;
    slots_[i] = s;
  }
}

void MergeTable::apply(std::span<TokenId> symbols, std::vector<TokenId>& out, Origins* origins) const {
  if (symbols.size() <= kShort && origins == nullptr) return apply_short(symbols, out);
  apply_long(symbols, out, origins);
}

void MergeTable::apply_short(std::span<TokenId> s, std::vector<TokenId>& out) const {
  size_t n = s.size();
  Merge next[kShort];  // next[i] joins s[i] and s[i + 1]
  const auto look_up = [&](size_t i) {
    const Merge* merge = find(s[i], s[i + 1]);
    next[i] = merge != nullptr ? *merge : Merge{kNoRank, 0};
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (next[i].rank < next[best].rank) best = i;
    }
    if (next[best].rank == kNoRank) break;
    s[best] = next[best].joined;
    std::memmove(&s[best + 1], &s[best + 2], (n - best - 2) * sizeof(TokenId));
    if (best + 2 < n) std::memmove(&next[best + 1], &next[best + 2], (n - best - 2) * sizeof(Merge));
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  out.insert(out.end(), s.begin(), s.begin() + n);
}

void MergeTable::apply_long(std::span<TokenId> s, std::vector<TokenId>& out, Origins* origins) const {
  constexpr int32_t kEnd = -1;
  struct Link {
    int32_t previous, next;
    bool alive = true;
  };
  struct Candidate {
    uint64_t key;  // rank << 32 | position: lowest first, from left to right
    TokenId joined;
    bool operator>(const Candidate& other) const { return key > other.key; }
  };
  const auto n = static_cast<int32_t>(s.size());
  std::vector<Link> links(n);
  for (int32_t i = 0; i < n; ++i) links[i] = {i - 1, i + 1 < n ? i + 1 : kEnd};

  std::vector<Candidate> heap;
  heap.reserve(n);
  const auto candidate = [&](int32_t left, int32_t right) {
    const Merge* merge = find(s[left], s[right]);
    if (merge == nullptr) return false;
    if (origins != nullptr) (*origins)[merge->joined] = {s[left], s[right]};
    heap.push_back({uint64_t{merge->rank} << 32 | static_cast<uint32_t>(left), merge->joined});
    return true;
  };
  for (int32_t i = 0; i + 1 < n; ++i) candidate(i, i + 1);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Candidate top = heap.back();
    heap.pop_back();
    const auto left = static_cast<int32_t>(top.key & UINT32_MAX);
    if (!links[left].alive || links[left].next == kEnd) continue;
    const int32_t right = links[left].next;
    // An older candidate of this place is stale when its pair is no longer here.
    const Merge* merge = find(s[left], s[right]);
    if (merge == nullptr || merge->joined != top.joined) continue;
    s[left] = top.joined;
    links[right].alive = false;
    links[left].next = links[right].next;
    if (links[left].next != kEnd) links[links[left].next].previous = left;
    const int32_t before = links[left].previous;
    if (before != kEnd && candidate(before, left)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (links[left].next != kEnd && candidate(left, links[left].next)) {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  for (int32_t i = 0; i != kEnd && n > 0; i = links[i].next) out.push_back(s[i]);
}

}  // namespace tutti

#include "text/merges.h"

#include <gtest/gtest.h>

#include <random>

namespace tutti {
namespace {

// The rule itself: join the leftmost pair of the lowest rank until there is none.
std::vector<TokenId> by_the_rule(const MergeTable& merges, std::vector<TokenId> s) {
  while (true) {
    size_t best = s.size();
    for (size_t i = 0; i + 1 < s.size(); ++i) {
      const Merge* merge = merges.find(s[i], s[i + 1]);
      if (merge == nullptr) continue;
      if (best == s.size() || merge->rank < merges.find(s[best], s[best + 1])->rank) best = i;
    }
    if (best == s.size()) return s;
    s[best] = merges.find(s[best], s[best + 1])->joined;
    s.erase(s.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Merges, ShortAndLongPiecesFollowTheRule) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    MergeTable merges;
    TokenId next = 3;
    for (uint32_t rank = 0; rank < 12; ++rank) {
      const auto left = static_cast<TokenId>(random() % next), right = static_cast<TokenId>(random() % next);
      if (merges.insert(left, right, {rank, next})) ++next;
    }
    for (const size_t size : {0, 1, 2, 7, 39, 40, 41, 200}) {
      std::vector<TokenId> symbols(size);
      for (TokenId& s : symbols) s = static_cast<TokenId>(random() % 3);
      const std::vector<TokenId> expected = by_the_rule(merges, symbols);
      std::vector<TokenId> copy = symbols, out, with_origins;
      merges.apply(copy, out);
      EXPECT_EQ(out, expected);
      MergeTable::Origins origins;
      merges.apply(symbols, with_origins, &origins);
      EXPECT_EQ(with_origins, expected);
    }
  }
}

TEST(Merges, KeepsTheFirstRankOfAPair) {
  MergeTable merges;
  EXPECT_TRUE(merges.insert(1, 2, {5, 7}));
  EXPECT_FALSE(merges.insert(1, 2, {3, 8}));
  EXPECT_EQ(merges.find(1, 2)->joined, 7);
  EXPECT_EQ(merges.find(2, 1), nullptr);
  for (TokenId i = 0; i < 5000; ++i) merges.insert(i, i + 10, {0, i});
  EXPECT_EQ(merges.find(1, 2)->joined, 7);
  EXPECT_EQ(merges.find(4999, 5009)->joined, 4999);
}

}  // namespace
}  // namespace tutti

#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <numeric>

#include "text/unicode.h"

namespace tutti {
namespace {

constexpr TokenId kSpecial = 256;

// Ids 0..255 are bytes, 256 is special, further ids are the given strings.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> more = {}) : more_(std::move(more)) {
    for (int b = 0; b < 256; ++b) bytes_.push_back(std::string(1, static_cast<char>(b)));
    bytes_.push_back("<special>");
    bytes_.insert(bytes_.end(), more_.begin(), more_.end());
  }
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions&) const override {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }
  std::string decode(const std::vector<TokenId>& ids, bool skip) const override {
    std::string out;
    for (const TokenId id : ids) out += skip && is_special(id) ? "" : bytes_[id];
    return repair_utf8(out);
  }
  int64_t vocab_size() const override { return static_cast<int64_t>(bytes_.size()); }
  std::string token(TokenId id) const override { return id > kSpecial ? "▁" + bytes_[id].substr(1) : bytes_[id]; }
  std::optional<TokenId> token_id(std::string_view) const override { return std::nullopt; }
  bool is_special(TokenId id) const override { return id == kSpecial; }
  std::string_view token_bytes(TokenId id) const override { return bytes_[id]; }
  int leading_spaces_dropped() const override { return 1; }

 private:
  std::vector<std::string> more_, bytes_;
};

std::vector<std::string> push_all(Detokenizer& detokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> out;
  for (const TokenId id : ids) out.push_back(detokenizer.push(id));
  out.push_back(detokenizer.finish());
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Detokenizer, NeverGivesHalfACharacter) {
  const ByteTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, {}, {});
  const Pieces pieces = push_all(detokenizer, tokenizer.encode("aé👩", {}));
  EXPECT_EQ(pieces, (Pieces{"a", "", "é", "", "", "", "👩", ""}));
  EXPECT_EQ(detokenizer.text(), "aé👩");
}

TEST(Detokenizer, UnfinishedAndInvalidBytesBecomeReplacements) {
  const ByteTokenizer tokenizer;
  Detokenizer unfinished(tokenizer, {}, {});
  EXPECT_EQ(push_all(unfinished, {0xf0, 0x9f}), (Pieces{"", "", "\xef\xbf\xbd"}));
  Detokenizer invalid(tokenizer, {}, {});
  EXPECT_EQ(push_all(invalid, {0xff, 0xe2, 'a'}), (Pieces{"\xef\xbf\xbd", "", "\xef\xbf\xbd" "a", ""}));
}

TEST(Detokenizer, ContinuesACharacterThatThePromptBegan) {
  const ByteTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, {'x', 0xf0, 0x9f, 0x91}, {});
  EXPECT_EQ(detokenizer.push(0xa9), "👩");
}

TEST(Detokenizer, SkipsSpecialTokensUnlessAsked) {
  const ByteTokenizer tokenizer;
  Detokenizer skips(tokenizer, {}, {});
  EXPECT_EQ(push_all(skips, {'a', kSpecial, 'b'}), (Pieces{"a", "", "b", ""}));
  Detokenizer shows(tokenizer, {}, {.skip_special_tokens = false});
  EXPECT_EQ(push_all(shows, {'a', kSpecial}), (Pieces{"a", "<special>", ""}));
}

TEST(Detokenizer, DropsTheDummySpaceOnlyAtTheStartOfAText) {
  const ByteTokenizer tokenizer({" hello"});
  Detokenizer at_start(tokenizer, {kSpecial}, {});
  EXPECT_EQ(push_all(at_start, {257, 257}), (Pieces{"hello", " hello", ""}));
  Detokenizer after_text(tokenizer, {'x'}, {});
  EXPECT_EQ(after_text.push(257), " hello");
  Detokenizer real_space(tokenizer, {}, {});
  EXPECT_EQ(real_space.push(' '), " ");
}

TEST(Detokenizer, FindsAStopStringAcrossTokens) {
  const ByteTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, {}, {.stop = {"END"}});
  EXPECT_EQ(push_all(detokenizer, {'a', 'E', 'N', 'x', 'E', 'N', 'D', 'y'}),
            (Pieces{"a", "", "", "ENx", "", "", "", "", ""}));
  EXPECT_TRUE(detokenizer.stopped());
  EXPECT_EQ(detokenizer.stop_string(), "END");
  EXPECT_EQ(detokenizer.text(), "aENx");
}

TEST(Detokenizer, IncludesTheStopStringWhenAsked) {
  const ByteTokenizer tokenizer({" one two three"});
  Detokenizer detokenizer(tokenizer, {'x'}, {.stop = {"two"}, .include_stop_str_in_output = true});
  EXPECT_EQ(detokenizer.push(257), " one two");
  EXPECT_TRUE(detokenizer.stopped());
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, TakesTheEarliestOfSeveralStopStrings) {
  const ByteTokenizer tokenizer({" a b c"});
  Detokenizer detokenizer(tokenizer, {'x'}, {.stop = {"c", "", "b"}});
  EXPECT_EQ(detokenizer.push(257), " a ");
  EXPECT_EQ(detokenizer.stop_string(), "b");
}

TEST(Detokenizer, GivesHeldTextBackAtTheEnd) {
  const ByteTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, {}, {.stop = {"abc", "bd"}});
  EXPECT_EQ(push_all(detokenizer, {'a', 'b'}), (Pieces{"", "", "ab"}));
  EXPECT_FALSE(detokenizer.stopped());
}

TEST(Detokenizer, StopStringsDoNotCountBeforeTheMinimum) {
  const ByteTokenizer tokenizer;
  Detokenizer detokenizer(tokenizer, {}, {.stop = {"s"}, .min_tokens = 2});
  EXPECT_EQ(push_all(detokenizer, {'s', 's', 'a', 's', 'b'}), (Pieces{"s", "s", "a", "", "", ""}));
  // One that begins before and ends after the minimum does.
  Detokenizer across(tokenizer, {}, {.stop = {"xyz"}, .min_tokens = 2});
  EXPECT_EQ(push_all(across, {'x', 'y', 'z'}), (Pieces{"", "", "", ""}));
  EXPECT_TRUE(across.stopped());
}

TEST(Detokenizer, PiecesJoinToTheTextOfDecode) {
  const ByteTokenizer tokenizer;
  std::vector<TokenId> ids(256);
  std::iota(ids.begin(), ids.end(), 0);
  ids.insert(ids.end(), ids.rbegin(), ids.rend());
  Detokenizer detokenizer(tokenizer, {'x'}, {.stop = {"not there"}});
  const Pieces pieces = push_all(detokenizer, ids);
  EXPECT_EQ(std::accumulate(pieces.begin(), pieces.end(), std::string()), tokenizer.decode(ids, true));
}

}  // namespace
}  // namespace tutti

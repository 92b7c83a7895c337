// Each hand-written scanner against its regex in PCRE2, on random texts over characters that the regexes treat apart.
#include "text/word_scanner.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/regex.h"
#include "text/unicode.h"

namespace tutti {
namespace {

const std::vector<std::string> kUnits = {
    "a", "b", "Z", "s", "T", "ll", "VE", "re", "d", "é", "É", "ǅ", "ʰ", "ß", "ſ", "中", "の", "カ", "龥", "\u0301", "\u093e",
    "0", "7", "½", "٣", "Ⅷ", " ", "  ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u3000", "\u180e", "\u2028", "\x1c", "'", "''",
    "!", "/", "-", "_", "+", "€", "«", "。", "👩", "\u200d", "\u0001", "\u00ad", "\U000e0041"};

std::string random_text(std::mt19937& random) {
  std::string out;
  for (size_t n = random() % 24; n > 0; --n) out += kUnits[random() % kUnits.size()];
  return out;
}

std::vector<std::string> by_scanner(ScannerKind kind, const std::string& text) {
  std::vector<Piece> pieces;
  scan_words(kind, text, {0, static_cast<uint32_t>(text.size())}, pieces);
  std::vector<std::string> out;
  for (const Piece& p : pieces) out.push_back(text.substr(p.begin, p.size()));
  return out;
}

std::vector<std::string> by_regex(const Regex& regex, const std::string& text) {
  std::vector<std::string> out;
  size_t covered = 0;
  regex.for_each(text, [&](size_t begin, size_t end) {
    if (covered < begin) out.push_back(text.substr(covered, begin - covered));
    out.push_back(text.substr(begin, end - begin));
    covered = end;
  });
  if (covered < text.size()) out.push_back(text.substr(covered));
  return out;
}

TEST(WordScanner, CutsLikeItsRegex) {
  int compared = 0;
  for (const char* name : {"gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "gpt-4o", "tekken", "deepseek-v3"}) {
    for (const std::string& pattern : gguf_pre_tokenizer_regexes(name)) {
      const auto kind = scanner_for_regex(pattern);
      ASSERT_TRUE(kind) << name << ": " << pattern;
      const Regex regex(pattern);
      std::mt19937 random(compared++);
      for (int i = 0; i < 3000; ++i) {
        const std::string text = random_text(random);
        ASSERT_EQ(by_scanner(*kind, text), by_regex(regex, text)) << name << ": '" << text << "'";
      }
    }
  }
  EXPECT_EQ(compared, 11);
}

TEST(WordScanner, LooksOnlyAtItsPart) {
  const std::string text = "ab  cd";
  std::vector<Piece> pieces;
  scan_words(ScannerKind::kGpt2, text, {1, 4}, pieces);
  ASSERT_EQ(pieces.size(), 2u);  // "b", "  ": the part ends after the spaces
  EXPECT_EQ(pieces[1].begin, 2u);
  EXPECT_EQ(pieces[1].end, 4u);
}

TEST(Regex, EveryGgufNameCompiles) {
  for (const char* name : {"default", "falcon", "deepseek-llm", "deepseek-coder", "bloom", "viking"}) {
    for (const std::string& pattern : gguf_pre_tokenizer_regexes(name)) EXPECT_NO_THROW(Regex{pattern}) << name;
  }
  EXPECT_THROW(gguf_pre_tokenizer_regexes("no-such"), ConfigError);
}

TEST(Regex, CatastrophicBacktrackingIsAnError) {
  const Regex regex("(a+)+$!|(a|aa)+!b");
  EXPECT_THROW(regex.for_each(std::string(5000, 'a'), [](size_t, size_t) {}), InvalidRequest);
}

TEST(Unicode, ClassifiesBytes) {
  size_t length;
  EXPECT_EQ(classify_utf8("\xe2\x82\xac", 0, length), Utf8Kind::kCharacter);
  EXPECT_EQ(length, 3u);
  EXPECT_EQ(classify_utf8("\xe2\x82", 0, length), Utf8Kind::kCutOff);
  EXPECT_EQ(classify_utf8("\xe2\x82x", 0, length), Utf8Kind::kInvalid);
  EXPECT_EQ(length, 2u);
  EXPECT_EQ(classify_utf8("\xed\xa0\x80", 0, length), Utf8Kind::kInvalid);  // a surrogate
  EXPECT_EQ(classify_utf8("\xf4\x90\x80\x80", 0, length), Utf8Kind::kInvalid);
  EXPECT_EQ(classify_utf8("\xc0\x80", 0, length), Utf8Kind::kInvalid);
  EXPECT_FALSE(valid_utf8("abcdefgh\xff"));
  EXPECT_EQ(repair_utf8("a\xf0\x9f\x91" "b"), "a\xef\xbf\xbd" "b");
}

TEST(Unicode, ComposesAndDecomposes) {
  EXPECT_EQ(to_nfc("e\u0301"), "é");
  EXPECT_EQ(to_nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(to_nfc("a\u0327\u0301 plain"), "á\u0327 plain");
  EXPECT_EQ(to_nfc("\u1100\u1161\u11a8"), "각");
  EXPECT_EQ(to_nfc("\u212b\u0958"), "Å\u0915\u093c");
  EXPECT_EQ(to_nfd("각é"), "\u1100\u1161\u11a8e\u0301");
  EXPECT_EQ(category(U'a'), Category::kLl);
  EXPECT_EQ(category(0x10ffff), Category::kCn);
}

}  // namespace
}  // namespace tutti

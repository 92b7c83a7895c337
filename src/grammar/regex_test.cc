#include "grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "grammar/testing_languages.h"

namespace tutti::grammar {
namespace {

using testing::HasSubstr;

TEST(Regex, AgreesWithTheStandardLibrary) {
  const char* patterns[] = {"a*b+c?",          "(ab|ba)*",       "[a-c]{2,4}",   "a{3}",         "(a|b){0,3}c",
                            "[^ab]c",          "\\d+(\\.\\d+)?", "a.c",          "(a(b(c)?)?)+", "x|ab|abc|",
                            "(?:a|ab)(c|bcd)", "\\w+\\s\\w*",    "[\\d_-]+",     "a{2,}b{,2}",   "(a*)*b",
                            "(a|aa)+",         "[a\\]b]+",       "\\(\\[\\.\\*", "((a?){3}){2}"};
  std::mt19937_64 random(1);
  const std::string letters = "aabbcc.1_ -x]([*";
  for (const char* pattern : patterns) {
    const auto ours = of_regex(pattern);
    std::string standard = pattern;  // which does not know {,n}
    if (const size_t at = standard.find("{,"); at != std::string::npos) standard.insert(at + 1, "0");
    const std::regex theirs(standard, std::regex::ECMAScript);
    int matched = 0;
    for (int i = 0; i < 4000; ++i) {
      std::string text;
      for (size_t n = random() % 7; n > 0; --n) text += letters[random() % letters.size()];
      const bool expected = std::regex_match(text, theirs);
      matched += expected ? 1 : 0;
      ASSERT_EQ(ours->matches(text), expected) << pattern << " on '" << text << "'";
    }
    for (int i = 0; i < 50; ++i) {  // and what is drawn from it
      const auto text = draw_text(*ours, *test_vocabulary(), random, 8);
      if (!text || std::any_of(text->begin(), text->end(), [](char c) { return c < 0; })) continue;  // it knows bytes only
      ++matched;
      ASSERT_TRUE(std::regex_match(*text, theirs)) << pattern << " on '" << *text << "'";
    }
    EXPECT_GT(matched, 0) << pattern;
  }
}

TEST(Regex, SearchesUnlessAnchored) {
  const auto match = [](const char* pattern, const char* text) { return of_regex(pattern, RegexMatch::kSearch)->matches(text); };
  EXPECT_TRUE(match("b", "abc"));
  EXPECT_FALSE(match("^b", "abc"));
  EXPECT_TRUE(match("^a", "abc"));
  EXPECT_FALSE(match("b$", "abc"));
  EXPECT_TRUE(match("^abc$", "abc"));
  EXPECT_TRUE(match("^x|c$", "abc"));
  EXPECT_FALSE(match("^x|b$", "abc"));
  EXPECT_TRUE(of_regex("^abc$")->matches("abc"));
}

TEST(Regex, IsAboutCharactersNotBytes) {
  EXPECT_TRUE(of_regex("[à-ü]{2}€😀.")->matches("éö€😀\xF0\x9F\x98\x81"));
  EXPECT_FALSE(of_regex("[à-ü]{2}")->matches("é"));
  EXPECT_TRUE(of_regex("[^a]")->matches("€"));
  EXPECT_FALSE(of_regex("[^a]")->matches("\xE2\x82"));       // half of it
  EXPECT_FALSE(of_regex(".")->matches("\xED\xA0\x80"));      // a surrogate
  EXPECT_FALSE(of_regex(".")->matches("\xC0\x80"));          // too long for what it is
  EXPECT_FALSE(of_regex(".")->matches("\xF4\x90\x80\x80"));  // beyond the last code point
  EXPECT_TRUE(of_regex("\\u00e9\\x41\\u{1F600}")->matches("éA😀"));
}

TEST(Regex, NamesWhatItDoesNotHave) {
  const auto error = [](const char* pattern) { return error_of([&] { of_regex(pattern); }); };
  EXPECT_THAT(error("a(?=b)"), HasSubstr("look-ahead"));
  EXPECT_THAT(error("(?<!a)b"), HasSubstr("look-behind"));
  EXPECT_THAT(error("(a)\\1"), HasSubstr("back-references"));
  EXPECT_THAT(error("\\bword"), HasSubstr("word boundaries"));
  // Where the fault begins, not where it was noticed; characters count, not bytes.
  EXPECT_THAT(error("(a)\\1"), HasSubstr("(at character 4)"));
  EXPECT_THAT(error("\\bfoo"), HasSubstr("(at character 1)"));
  EXPECT_THAT(error("a(?=b)"), HasSubstr("(at character 2)"));
  EXPECT_THAT(error("ab(c"), HasSubstr("(at character 3)"));
  EXPECT_THAT(error("a[bc"), HasSubstr("(at character 2)"));
  EXPECT_THAT(error("[az-a]"), HasSubstr("(at character 3)"));
  EXPECT_THAT(error("\xC3\xA4\xE4\xB8\xAD\\bfoo"), HasSubstr("(at character 3)"));
  EXPECT_THAT(error("\\p{L}"), HasSubstr("Unicode properties"));
  EXPECT_THAT(error("(?i)a"), HasSubstr("(?i"));
  EXPECT_THAT(error("a*+"), HasSubstr("possessive"));
  EXPECT_THAT(error("a(^b)"), HasSubstr("`^`"));
  EXPECT_THAT(error("(a"), HasSubstr("without its `)`"));
  EXPECT_THAT(error("a)"), HasSubstr("without its `(`"));
  EXPECT_THAT(error("[a"), HasSubstr("without its `]`"));
  EXPECT_THAT(error("*"), HasSubstr("nothing before"));
  EXPECT_THAT(error("a{3,1}"), HasSubstr("counts down"));
  EXPECT_THAT(error("[z-a]"), HasSubstr("counts down"));
  EXPECT_THAT(error("[]"), HasSubstr("no text can satisfy it"));
  EXPECT_THAT(error("a[]|b[]c"), HasSubstr("no text can satisfy it"));
  EXPECT_EQ(error("a|b[]c"), "");
}

TEST(Regex, HugeOnesEndAtALimit) {
  const auto error = [](const std::string& pattern) { return error_of([&] { of_regex(pattern); }); };
  EXPECT_EQ(error("(a+)+$"), "");
  EXPECT_EQ(error("((a{1000}){1000}){1000}"), "");  // copies are calls: 3000 states
  EXPECT_THAT(error("(a{70000})"), HasSubstr("too large"));
  EXPECT_THAT(error("(){1000000000}"), HasSubstr("too large"));
  EXPECT_THAT(error(std::string(100, '(') + "a" + std::string(100, ')')), HasSubstr("nested deeper"));
  EXPECT_THAT(error(std::string(100'000, 'a')), HasSubstr("too large"));
  const auto nested = of_regex("(((a*)*)*)*b");
  EXPECT_TRUE(nested->matches(std::string(2000, 'a') + "b"));
  EXPECT_FALSE(nested->matches(std::string(2000, 'a')));
  // 2^40 states of a DFA, of which only those on the way are made.
  const auto wide = of_regex("(a|b)*a(a|b){40}");
  EXPECT_TRUE(wide->matches("a" + std::string(40, 'b')));
  EXPECT_FALSE(wide->matches(std::string(41, 'b')));
}

}  // namespace
}  // namespace tutti::grammar

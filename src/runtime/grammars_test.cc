#include "runtime/grammars.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "grammar/grammar.h"
#include "grammar/regex.h"
#include "grammar/vocabulary.h"

namespace tutti {
namespace {

GrammarBytes pattern(const std::string& regex) {
  grammar::Rules rules;
  rules.declare("the pattern");
  rules.define(0, grammar::parse_regex(regex, grammar::RegexMatch::kWhole));
  return GrammarBytes(grammar::compile(rules).to_bytes());
}

TEST(Grammars, RequestsOfOneFormShareIt) {
  int asked = 0;
  Grammars grammars([&] {
    ++asked;
    return grammar::Vocabulary::to_bytes({"a", "b", ""});
  });
  const auto first = grammars.find(pattern("ab*"));
  EXPECT_EQ(grammars.find(pattern("ab*")), first);
  EXPECT_NE(grammars.find(pattern("ba*")), first);
  EXPECT_EQ(asked, 1);
  // Those that were asked for longest ago are forgotten, but not taken away from who has them.
  for (int n = 1; n <= 16; ++n) grammars.find(pattern("a{" + std::to_string(n) + "}"));
  EXPECT_NE(grammars.find(pattern("ab*")), first);
  EXPECT_TRUE(first->matches("abb"));
}

TEST(Grammars, WhatIsNoneStaysNone) {
  Grammars grammars([] { return grammar::Vocabulary::to_bytes({"a"}); });
  for (int i = 0; i < 2; ++i) EXPECT_THROW(grammars.find(GrammarBytes("not a grammar")), IoError);
  Grammars without_tokens(nullptr);
  for (int i = 0; i < 2; ++i) EXPECT_THROW(without_tokens.find(pattern("a")), ConfigError);
}

}  // namespace
}  // namespace tutti

#include "grammar/automaton.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/testing_languages.h"

namespace tutti::grammar {
namespace {

using testing::HasSubstr;

// The mask against its definition: a token is allowed when some text goes on behind it.
void expect_exact_mask(Automaton& automaton, const std::vector<int32_t>& tokens) {
  Progress progress;
  const auto mask = automaton.next(progress, tokens);
  const int32_t end = static_cast<int32_t>(test_vocabulary()->size()) - 1;
  EXPECT_FALSE(mask->allows(end));
  for (int32_t t = 0; t < end; ++t) {
    std::vector<int32_t> more = tokens;
    for (const char c : test_vocabulary()->bytes(t)) more.push_back(static_cast<uint8_t>(c));  // byte by byte
    Progress fresh;
    const auto after = automaton.next(fresh, more);
    ASSERT_EQ(mask->allows(t), !after->none() || after->may_end)
        << "token '" << test_vocabulary()->bytes(t) << "' behind " << tokens.size() << " tokens";
  }
}

std::vector<int32_t> bytes_of(std::string_view text) {
  std::vector<int32_t> tokens;
  for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

TEST(Automaton, MasksAreExact) {
  const auto json = of_schema(R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"},
    "tags": {"type": "array", "items": {"enum": ["ab", "abc", "é€"]}}}, "required": ["name"]})");
  const std::string text = "{\"name\": \"a\\\"é\", \"age\": 12,\"tags\": [\n\"abc\", \"é€\"]}";
  ASSERT_TRUE(json->matches(text));
  for (size_t n = 0; n <= text.size(); ++n) expect_exact_mask(*json, bytes_of(text.substr(0, n)));
  const auto nested = of_ebnf("root ::= \"(\" root \")\" root | [ab] \"aaa\"? | \"\"");
  for (const char* begin : {"", "(", "((", "((a)", "((aaaa)()", "(()b"}) expect_exact_mask(*nested, bytes_of(begin));
}

TEST(Automaton, TokensMayEndWithinACharacter) {
  const auto euro = of_regex("€+");
  Progress progress;
  const auto find = [](std::string_view text) {
    for (int32_t t = 256; t < test_vocabulary()->size(); ++t) {
      if (test_vocabulary()->bytes(t) == text) return t;
    }
    return -1;
  };
  const int32_t half = find("\xE2\x82");
  EXPECT_TRUE(euro->next(progress, {})->allows(half));
  const std::vector<int32_t> one = {half};
  const auto mask = euro->next(progress, one);
  EXPECT_FALSE(mask->may_end);
  EXPECT_EQ(mask->tokens, std::vector<int32_t>{0xAC});
  const std::vector<int32_t> whole = {half, 0xAC};
  EXPECT_TRUE(euro->next(progress, whole)->may_end);
}

TEST(Automaton, EqualTokensAreAllowedTogether) {
  const auto ab = of_regex("ab");
  Progress progress;
  int count = 0;
  const auto mask = ab->next(progress, {});
  for (int32_t t = 0; t < test_vocabulary()->size(); ++t) count += mask->allows(t) && test_vocabulary()->bytes(t) == "ab" ? 1 : 0;
  EXPECT_EQ(count, 2);
}

TEST(Automaton, NothingComesBehindTheEnd) {
  const auto ab = of_regex("a+");
  Progress progress;
  const auto end = static_cast<int32_t>(test_vocabulary()->size()) - 1;
  const std::vector<int32_t> tokens = {'a', end};
  EXPECT_TRUE(ab->next(progress, tokens)->none());
  const std::vector<int32_t> wrong = {'b'};
  Progress other;
  EXPECT_TRUE(ab->next(other, wrong)->none());
}

// A preempted request comes back with all its tokens at once.
TEST(Automaton, ProgressDoesNotDependOnTheSteps) {
  const auto json = of_schema(R"({"type": "array", "items": {"type": "object"}})");
  const std::vector<int32_t> tokens = bytes_of("[{\"a\": [1, {\"b\": null}], \"c\": \"x");
  Progress by_one;
  for (size_t n = 0; n < tokens.size(); ++n) json->next(by_one, std::span(tokens).first(n));
  const auto one = json->next(by_one, tokens);
  Progress at_once;
  EXPECT_EQ(json->next(at_once, tokens), one);
  Progress back = by_one;
  const auto shorter = json->next(back, std::span(tokens).first(3));
  Progress fresh;
  EXPECT_EQ(json->next(fresh, std::span(tokens).first(3)), shorter);
}

// Each token doubles the number of ways that a text may have been read, and the configuration grows by a constant.
TEST(Automaton, AmbiguityDoesNotBlowUp) {
  const auto g = of_ebnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\" root root | \"x\"");
  std::string text(40, 'a');
  text += "x" + std::string(40, 'b');
  EXPECT_TRUE(g->matches(text));
  text[60] = 'c';
  EXPECT_TRUE(g->matches(text));
  text[60] = 'd';
  EXPECT_FALSE(g->matches(text));
  EXPECT_LT(g->counts().configurations, 2000u);
}

TEST(Automaton, NestingEndsSomewhere) {
  const auto g = of_ebnf("root ::= \"(\" root \")\" | \"x\"");
  EXPECT_TRUE(g->matches(std::string(200, '(') + "x" + std::string(200, ')')));
  Progress progress;
  std::vector<int32_t> tokens;
  while (g->next(progress, tokens)->allows('(') && tokens.size() < 1000) tokens.push_back('(');
  EXPECT_LT(tokens.size(), 300u);
  EXPECT_TRUE(g->next(progress, tokens)->allows('x'));
}

// A right-recursive list needs no stack.
TEST(Automaton, ListsAreAsLongAsTheyLike) {
  const auto g = of_ebnf("root ::= \"a\" more\nmore ::= \",\" \"a\" more | \"\"");
  std::string text = "a";
  for (int i = 0; i < 5000; ++i) text += ",a";
  EXPECT_TRUE(g->matches(text));
  EXPECT_LT(g->counts().configurations, 20u);
}

TEST(Automaton, ForgetsWhenItKnowsTooMuch) {
  const auto g = of_regex("(a|b)*a(a|b){400}");
  std::mt19937_64 random(3);
  Progress progress, other;
  std::vector<int32_t> tokens;
  const uint64_t before = g->counts().generation;
  for (int i = 0; i < 6000 && g->counts().generation == before; ++i) {
    tokens.push_back(random() % 2 == 0 ? 'a' : 'b');
    const auto mask = g->next(progress, tokens);
    ASSERT_TRUE(mask->allows('a') && mask->allows('b'));
  }
  EXPECT_GT(g->counts().generation, before);
  EXPECT_EQ(g->next(progress, tokens)->may_end, g->next(other, tokens)->may_end);
}

TEST(Ebnf, GrammarsAsPeopleWriteThem) {
  const auto sql = of_ebnf(R"(
# a comment
root ::= select_statement
select_statement ::= "SELECT " column (", " column)* " from " table
    ( " where " condition )?   # goes on in the next line
column ::= "col_1" | 'col_2'
table ::= "table_" [1-2]
condition ::= column " = " number
number ::= "-"? [0-9]{1,3} ("." [0-9]+)?
)");
  EXPECT_TRUE(sql->matches("SELECT col_1, col_2 from table_2 where col_1 = -12.50"));
  EXPECT_TRUE(sql->matches("SELECT col_2 from table_1"));
  EXPECT_FALSE(sql->matches("SELECT col_3 from table_1"));
  EXPECT_FALSE(sql->matches("SELECT col_2 from table_1 where col_1 = 1234"));
  const auto escapes = of_ebnf(R"(root ::= "\"\n\\" [^a-z\]\n] "\x41\u00e9" .)");
  EXPECT_TRUE(escapes->matches("\"\n\\ZAé€"));
  EXPECT_FALSE(escapes->matches("\"\n\\]Aé€"));
}

TEST(Ebnf, NamesWhatIsWrong) {
  const auto error = [](const char* text) { return error_of([&] { of_ebnf(text); }); };
  EXPECT_THAT(error(""), HasSubstr("no rule `root`"));
  EXPECT_THAT(error("start: \"a\""), HasSubstr("Lark"));
  EXPECT_THAT(error("root ::= other"), HasSubstr("`other` is used, but not defined"));
  EXPECT_THAT(error("root ::= \"a\"\nroot ::= \"b\""), HasSubstr("defined twice"));
  EXPECT_THAT(error("root ::= root \"a\" | \"b\""), HasSubstr("`root` is left-recursive"));
  EXPECT_THAT(error("root ::= a \"x\"\na ::= b? root | \"y\"\nb ::= \"z\""), HasSubstr("left-recursive"));
  EXPECT_THAT(error("root ::= \"a"), HasSubstr("no closing quote"));
  EXPECT_THAT(error("root ::= \"a\" )"), HasSubstr("not expected"));
  EXPECT_THAT(error("root ::= \"a\" root"), HasSubstr("no text can satisfy it"));
  EXPECT_THAT(error("root ::= ("), HasSubstr("without its `)`"));
}

// Rules that may be empty, each twice the next one: 2^40 ways to begin.
TEST(Automaton, AmbiguityIsCutShort) {
  const auto doubled = [](const std::string& root) {
    std::string text = "root ::= " + root + "\n";
    for (int i = 0; i < 40; ++i) text += fmt::format("a{} ::= a{} a{}\n", i, i + 1, i + 1);
    return of_ebnf((text + "a40 ::= \"x\" | \"\"\n").c_str());
  };
  EXPECT_FALSE(doubled("a0 a0")->start_is_whole());
  const auto later = doubled("\"y\" a0 a0");  // found only when it comes to it
  EXPECT_TRUE(later->start_is_whole());
  Progress progress;
  std::vector<int32_t> tokens;
  EXPECT_TRUE(later->next(progress, tokens)->allows('y'));
  tokens.push_back('y');
  for (int i = 0; i < 3; ++i) {
    const auto mask = later->next(progress, tokens);
    EXPECT_FALSE(mask->allows('y'));
    tokens.push_back('x');
  }
  EXPECT_TRUE(of_ebnf("root ::= \"(\" root \")\" root | \"\"")->start_is_whole());
}

TEST(Grammar, TravelsAsBytes) {
  const Grammar g = compile(parse_ebnf("root ::= [a-z]+ (\"(\" root \")\")?"));
  const std::string bytes = g.to_bytes();
  EXPECT_EQ(Grammar::from_bytes(bytes), g);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_THROW(Grammar::from_bytes(bytes.substr(0, n)), IoError);
  std::mt19937_64 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      Automaton(Grammar::from_bytes(damaged), test_vocabulary()).matches("abc(def)");
    } catch (const IoError&) {
    }
  }
}

}  // namespace
}  // namespace tutti::grammar

// Expressions: arithmetic, comparison, literals, items, undefined values.
// The expected texts are those of Python's jinja2.
#include <gtest/gtest.h>

#include "text/jinja_test_support.h"

namespace tutti::jinja {
namespace {

TEST(JinjaExpressions, Integers) {
  expect_values({
      {"7 // 2", "3"},
      {"-7 // 2", "-4"},
      {"7 % -3", "-2"},
      {"-7 % 3", "2"},
      {"2 ** 10", "1024"},
      {"2 ** -1", "0.5"},
      {"(-2) ** 3", "-8"},
      {"-2 ** 2", "4"},
      {"2 ** 3 ** 2", "64"},
      {"7 / 2", "3.5"},
      {"6 / 2", "3.0"},
      {"1_000 + 0x1F + 0b11 + 0o17", "1049"},
      {"big + 1", "18446744073709551616"},
      {"10 ** 30", "1000000000000000000000000000000"},
      {"true + true", "2"},
      {"- - 3", "3"},
      {"+n", "7"},
      {"7 - 2 - 1", "4"},
  });
}

TEST(JinjaExpressions, Floats) {
  expect_values({
      {"0.1 + 0.2", "0.30000000000000004"},
      {"1e16", "1e+16"},
      {"1e15", "1000000000000000.0"},
      {"123456789012345680.0", "1.2345678901234568e+17"},
      {"1e-5", "1e-05"},
      {"0.0001", "0.0001"},
      {"1.0", "1.0"},
      {"-0.0", "-0.0"},
      {"1e300 * 1e10", "inf"},
      {"x // 0.7", "3.0"},
      {"-x % 0.7", "0.2999999999999998"},
      {"7.0 // 2", "3.0"},
      {"x ** 2", "6.25"},
      {"1.5e3", "1500.0"},
      {"100000.0 * 3", "300000.0"},
      {"5 % 2.5", "0.0"},
      {"1e22", "1e+22"},
      {"2.5e-7", "2.5e-07"},
  });
}

TEST(JinjaExpressions, Comparisons) {
  expect_values({
      {"1 < 2 < 3", "True"},
      {"1 < 3 < 2", "False"},
      {"1 == 1.0 == true", "True"},
      {"'a' < 'b'", "True"},
      {"[1, 2] < [1, 3]", "True"},
      {"(1, 2) == (1, 2)", "True"},
      {"(1,) == [1]", "False"},
      {"{'a': 1} == {'a': 1.0}", "True"},
      {"'a' in 'cab'", "True"},
      {"2 in xs", "True"},
      {"5 not in xs", "True"},
      {"'b' in d", "True"},
      {"none == none", "True"},
      {"none == false", "False"},
      {"1 != 1", "False"},
      {"'Z' < 'a'", "True"},
      {"'é' > 'z'", "True"},
      {"[] < [0]", "True"},
      {"9007199254740993 == 9007199254740992.0", "False"},
  });
}

TEST(JinjaExpressions, Logic) {
  expect_values({
      {"1 and 2", "2"},
      {"0 or 'x'", "x"},
      {"not ''", "True"},
      {"not 1 == 2", "True"},
      {"none and 1", "None"},
      {"[] or {}", "{}"},
      {"1 if 0 else 2", "2"},
      {"1 if 0", ""},
      {"(1 if 0) is undefined", "True"},
      {"1 if 1 else 2 if 0 else 3", "1"},
      {"not n is defined", "False"},
      {"n is not none and n > 3", "True"},
  });
}

TEST(JinjaExpressions, Literals) {
  expect_values({
      {"[1, 'a', 2.0, none, true]", "[1, 'a', 2.0, None, True]"},
      {"(1,)", "(1,)"},
      {"()", "()"},
      {"{'a': 1, 2: [3], 'b': {}}", "{'a': 1, 2: [3], 'b': {}}"},
      {"{}", "{}"},
      {"'a' 'b' \"c\"", "abc"},
      {"\"it's\"", "it's"},
      {"['it\\'s', \"x\"]", "[\"it's\", 'x']"},
      {"[1, 2,]", "[1, 2]"},
      {"(1, 2,)", "(1, 2)"},
      {"{'a': 1,}", "{'a': 1}"},
      {"none", "None"},
      {"True", "True"},
      {"'\\n\\t\\x41\\u00e9\\\\'", "\n\tAé\\"},
      {"['\\n\\t\\x41\\x07\\u200b']", "['\\n\\tA\\x07\\u200b']"},
      {"'\\q\\é'", "\\q\\xe9"},
  });
}

TEST(JinjaExpressions, ItemsAndAttributes) {
  expect_values({
      {"xs[0]", "3"},
      {"xs[-1]", "2"},
      {"xs[9]", ""},
      {"xs['0']", ""},
      {"d.b", "1"},
      {"d['a'][1]", "True"},
      {"d.missing", ""},
      {"d.missing is defined", "False"},
      {"d.items is callable", "True"},
      {"d.get('zz', 5)", "5"},
      {"d.get('zz')", "None"},
      {"u[1]", "京"},
      {"u[-2]", "🙂"},
      {"u[9]", ""},
      {"'abc'.1", "b"},
      {"(1, 2)[true]", "2"},
      {"ms[0].role", "user"},
      {"d.keys()|list", "['b', 'a']"},
      {"d.values()|list", "[1, [None, True]]"},
      {"d.items()|list", "[('b', 1), ('a', [None, True])]"},
      {"d.items()", "dict_items([('b', 1), ('a', [None, True])])"},
      {"d.keys()", "dict_keys(['b', 'a'])"},
      {"missing", ""},
      {"missing|default('m')", "m"},
      {"d.__class__", ""},
      {"xs.append", ""},
      {"xs.append is defined", "False"},
      {"x.real", "2.5"},
      {"xs.index(2)", "2"},
      {"xs.count(1)", "1"},
  });
}

TEST(JinjaExpressions, Slices) {
  expect_values({
      {"u[1:3]", "京🙂"},
      {"u[::-1]", "é🙂京東"},
      {"xs[1:]", "[1, 2]"},
      {"xs[:-1]", "[3, 1]"},
      {"xs[::2]", "[3, 2]"},
      {"xs[5:]", "[]"},
      {"xs[-2:][::-1]", "[2, 1]"},
      {"(1, 2, 3)[:2]", "(1, 2)"},
      {"range(10)[2:8:3]", "range(2, 8, 3)"},
      {"range(10)[::-1]|list", "[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]"},
      {"u[:100]", "東京🙂é"},
      {"''[1:]", ""},
  });
}

TEST(JinjaExpressions, Concatenation) {
  expect_values({
      {"1 ~ 'a' ~ none ~ 2.0 ~ missing", "1aNone2.0"},
      {"'a' + 'b' * 2", "abb"},
      {"[1] + [2] * 2", "[1, 2, 2]"},
      {"(1,) + (2,)", "(1, 2)"},
      {"3 * 'ab'", "ababab"},
      {"'x' * -1", ""},
      {"'a' ~ [1, 'b']", "a[1, 'b']"},
  });
}

TEST(JinjaExpressions, Tests) {
  expect_values({
      {"n is odd", "True"},
      {"n is even", "False"},
      {"n is divisibleby 7", "True"},
      {"n is divisibleby(2)", "False"},
      {"x is float", "True"},
      {"n is integer", "True"},
      {"true is integer", "False"},
      {"true is number", "True"},
      {"s is string", "True"},
      {"d is mapping", "True"},
      {"xs is sequence", "True"},
      {"d is iterable", "True"},
      {"none is none", "True"},
      {"s is lower", "False"},
      {"'ABC' is upper", "True"},
      {"3 is in xs", "True"},
      {"3 is eq 3", "True"},
      {"n is gt 5", "True"},
      {"missing is undefined", "True"},
      {"range is callable", "True"},
      {"'tojson' is filter", "True"},
      {"'odd' is test", "True"},
      {"n is sameas n", "True"},
      {"1 is boolean", "False"},
      {"false is false", "True"},
      {"('a'|e) is escaped", "True"},
  });
}

TEST(JinjaExpressions, Errors) {
  expect_errors({
      "missing.x",      "missing + 1",   "missing[0]",  "missing()",
      "1 + 'a'",        "'a' + 1",       "1 / 0",       "1 // 0",
      "1.0 % 0",        "[1] < ['a']",   "none < 1",    "1()",
      "'a' in 5",       "5 in 'a'",      "none|length", "xs + (1,)",
      "{[1]: 2}",       "xs[::0]",       "d[1:2]",      "-'a'",
      "0 ** -1",        "1 in none",     "missing < 1", "d.pop('b')",
      "d.update({})",   "xs.append(1)",  "xs.sort()",   "''.__class__.__mro__ ~ ''.__class__()",
      "range(1, 2, 0)", "range(200000)",
  });
}

}  // namespace
}  // namespace tutti::jinja

// Filters.
// The expected texts are those of Python's jinja2.
#include <gtest/gtest.h>

#include "text/jinja_test_support.h"

namespace tutti::jinja {
namespace {

TEST(JinjaFilters, Text) {
  expect_values({
      {"'  a '|trim", "a"},
      {"'xax'|trim('x')", "a"},
      {"'hello-world foo(bar)'|title", "Hello-World Foo(Bar)"},
      {"'hELLO'|capitalize", "Hello"},
      {"'a.b'|replace('.', '->')", "a->b"},
      {"'aaa'|replace('a', 'b', 2)", "bba"},
      {"'ab'|center(6)|tojson", "\"  ab  \""},
      {"'a\\nb\\n\\nc'|indent", "a\n    b\n\n    c"},
      {"'a\\nb\\n\\nc'|indent(2, true, true)", "  a\n  b\n  \n  c"},
      {"'a\\nb'|indent('> ')", "a\n> b"},
      {"'The quick brown fox'|truncate(12)", "The..."},
      {"'The quick brown fox'|truncate(12, true)", "The quick..."},
      {"'The quick'|truncate(7, false, '!', 0)", "The!"},
      {"'one two_three é-4'|wordcount", "4"},
      {"'a b/c?é'|urlencode", "a%20b/c%3F%C3%A9"},
      {"{'a b': 'c&', 'd': 1}|urlencode", "a+b=c%26&d=1"},
      {"'<p>a  <b>b</b></p>'|striptags", "a b"},
      {"'<a href=\"x\">'|escape", "&lt;a href=&#34;x&#34;&gt;"},
      {"'<'|safe|e", "<"},
      {"('<'|e) + '<'", "&lt;&lt;"},
      {"'%s-%d'|format('a', 3)", "a-3"},
      {"'%(x)s'|format(x=1)", "1"},
      {"5|string + 'a'", "5a"},
      {"{'a': 1, 'b': none, 'c': '\"'}|xmlattr", " a=\"1\" c=\"&#34;\""},
      {"'<'|e|forceescape", "&amp;lt;"},
  });
}

TEST(JinjaFilters, Defaults) {
  expect_values({
      {"missing|default('x')", "x"},
      {"''|default('x')", ""},
      {"''|default('x', true)", "x"},
      {"none|d('x')", "None"},
      {"none|d('x', boolean=true)", "x"},
      {"missing|d", ""},
  });
}

TEST(JinjaFilters, Numbers) {
  expect_values({
      {"'42'|int", "42"},
      {"'4x'|int(9)", "9"},
      {"'42.9'|int", "42"},
      {"'0x1f'|int(base=16)", "31"},
      {"'0b11'|int(0, 2)", "3"},
      {"' 1_0 '|int", "10"},
      {"none|int(3)", "3"},
      {"2.9|int", "2"},
      {"true|int", "1"},
      {"'inf'|int(7)", "7"},
      {"'1.5'|float", "1.5"},
      {"'x'|float(2.5)", "2.5"},
      {"'1e3'|float", "1000.0"},
      {"3|float", "3.0"},
      {"-3|abs", "3"},
      {"-2.5|abs", "2.5"},
      {"2.5|round", "2.0"},
      {"3.5|round", "4.0"},
      {"2.675|round(2)", "2.67"},
      {"1234|round(-2)", "1200"},
      {"2.1|round(0, 'ceil')", "3.0"},
      {"-2.1|round(method='floor')", "-3.0"},
      {"2.55|round(1, 'floor')", "2.5"},
      {"1000000|filesizeformat", "1.0 MB"},
      {"1500|filesizeformat(true)", "1.5 KiB"},
      {"1|filesizeformat", "1 Byte"},
  });
}

TEST(JinjaFilters, Sequences) {
  expect_values({
      {"xs|sort", "[1, 2, 3]"},
      {"xs|sort(reverse=true)", "[3, 2, 1]"},
      {"['b', 'A', 'c']|sort", "['A', 'b', 'c']"},
      {"['b', 'A', 'c']|sort(case_sensitive=true)", "['A', 'b', 'c']"},
      {"ms|sort(attribute='role,n')|map(attribute='n')|list", "[1, 0, 2]"},
      {"['a', 'A', 'b']|unique|list", "['a', 'b']"},
      {"['a', 'A']|unique(true)|list", "['a', 'A']"},
      {"xs|first", "3"},
      {"xs|last", "2"},
      {"[]|first", ""},
      {"xs|sum", "6"},
      {"ms|sum(attribute='n', start=10)", "13"},
      {"xs|min", "1"},
      {"xs|max", "3"},
      {"ms|max(attribute='n')", "{'role': 'user', 'n': 2}"},
      {"[]|max", ""},
      {"['b', 'A']|min", "A"},
      {"xs|join", "312"},
      {"xs|join(', ')", "3, 1, 2"},
      {"ms|join('-', attribute='role')", "user-system-user"},
      {"xs|reverse|list", "[2, 1, 3]"},
      {"xs|batch(2)|list", "[[3, 1], [2]]"},
      {"xs|batch(2, 0)|list", "[[3, 1], [2, 0]]"},
      {"range(7)|slice(3)|list", "[[0, 1, 2], [3, 4], [5, 6]]"},
      {"range(7)|slice(3, 'x')|list", "[[0, 1, 2], [3, 4, 'x'], [5, 6, 'x']]"},
      {"d|list", "['b', 'a']"},
      {"'abc'|list", "['a', 'b', 'c']"},
      {"xs|length", "3"},
      {"d|count", "2"},
      {"d|items|list", "[('b', 1), ('a', [None, True])]"},
      {"missing|items|list", "[]"},
      {"d|dictsort", "[('a', [None, True]), ('b', 1)]"},
      {"{'b': 2, 'A': 3}|dictsort(by='value', reverse=true)", "[('A', 3), ('b', 2)]"},
  });
}

TEST(JinjaFilters, Select) {
  expect_values({
      {"range(6)|select('odd')|list", "[1, 3, 5]"},
      {"range(6)|reject('gt', 2)|list", "[0, 1, 2]"},
      {"[0, 1, '', 'a']|select|list", "[1, 'a']"},
      {"ms|selectattr('role', 'equalto', 'user')|list|length", "2"},
      {"ms|rejectattr('n')|map(attribute='role')|list", "['user']"},
      {"ms|selectattr('n')|list|length", "2"},
      {"['a', 'b']|map('upper')|list", "['A', 'B']"},
      {"['a']|map('replace', 'a', 'b')|list", "['b']"},
      {"ms|map(attribute='zz', default='-')|list", "['-', '-', '-']"},
      {"ms|map(attribute='role.0')|list", "['u', 's', 'u']"},
      {"ms|groupby('role')",
       "[('system', [{'role': 'system', 'n': 1}]), ('user', [{'role': 'user', 'n': 2}, {'role': "
       "'user',"
       " 'n': 0}])]"},
      {"ms|groupby('role')|map(attribute='grouper')|list", "['system', 'user']"},
      {"(ms|groupby('role')|last).list|length", "2"},
      {"missing|map('upper')|list", "[]"},
      {"missing|select|list", "[]"},
  });
}

TEST(JinjaFilters, Json) {
  expect_values({
      {"d|tojson", "{\"b\": 1, \"a\": [null, true]}"},
      {"u|tojson", "\"東京🙂é\""},
      {"'\"\\\\/\\n\\x01\\x7f<>&'|tojson", "\"\\\"\\\\/\\n\\u0001\177<>&\""},
      {"[1.0, 1e100, none, true, -0.0, big]|tojson",
       "[1.0, 1e+100, null, true, -0.0, 18446744073709551615]"},
      {"{1: 'a', none: 2, true: 3, 1.5: 4}|tojson", "{\"1\": 3, \"null\": 2, \"1.5\": 4}"},
      {"(1, (2,))|tojson", "[1, [2]]"},
      {"{}|tojson(indent=2)", "{}"},
      {"d|tojson(indent=2)", "{\n  \"b\": 1,\n  \"a\": [\n    null,\n    true\n  ]\n}"},
      {"[[], {}]|tojson(indent='\\t')", "[\n\t[],\n\t{}\n]"},
      {"u|tojson(ensure_ascii=true)", "\"\\u6771\\u4eac\\ud83d\\ude42\\u00e9\""},
      {"{'b': 1, 'a': 2}|tojson(sort_keys=true)", "{\"a\": 2, \"b\": 1}"},
      {"[1, 2]|tojson(separators=(',', ':'))", "[1,2]"},
      {"d|tojson(indent=0)", "{\n\"b\": 1,\n\"a\": [\nnull,\ntrue\n]\n}"},
      {"1e400|tojson", "Infinity"},
  });
}

TEST(JinjaFilters, Globals) {
  expect_values({
      {"range(3)|list", "[0, 1, 2]"},
      {"range(5, 0, -2)|list", "[5, 3, 1]"},
      {"dict(a=1, **{'b': 2})", "{'a': 1, 'b': 2}"},
      {"dict([('a', 1)], c=3)", "{'a': 1, 'c': 3}"},
      {"dict.fromkeys('ab', 0)", "{'a': 0, 'b': 0}"},
      {"namespace(a=1)", "<Namespace {'a': 1}>"},
      {"namespace(a=1).a", "1"},
      {"namespace({'b': 2})['b']", "2"},
      {"namespace().zz is defined", "False"},
      {"strftime_now('') ~ strftime_now('%%%%') ~ strftime_now('%Z%z')", "%%"},
      {"strftime_now('%Y')|length", "4"},
  });
}

TEST(JinjaFilters, Errors) {
  expect_errors({
      "'a'|round",
      "[1, 'a']|sort",
      "[none, 1]|min",
      "5|list",
      "missing|int",
      "missing|float",
      "missing|abs",
      "missing|tojson",
      "range(3)|tojson",
      "{(1, 2): 3}|tojson",
      "xs|join(attribute=5)|length + none",
      "'a'|indent(first)|length + none",
      "5|indent",
      "[1]|map|list",
      "[1]|map('nosuch')|list",
      "[1]|select('nosuch')|list",
      "xs|batch",
      "5|dictsort",
      "xs|first(1)",
      "xs|sum(attribute='a')",
      "['a']|sum",
      "5|truncate",
      "5|length",
      "xs|groupby",
      "[[1]]|unique|list",
      "namespace(_a=1)",
      "'a'|attr(5)",
  });
}

}  // namespace
}  // namespace tutti::jinja

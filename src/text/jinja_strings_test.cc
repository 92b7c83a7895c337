// The methods of strings, Unicode, and both kinds of formatting.
// The expected texts are those of Python's jinja2.
#include <gtest/gtest.h>

#include "text/jinja_test_support.h"

namespace tutti::jinja {
namespace {

TEST(JinjaStrings, Case) {
  expect_values({
      {"s.upper()", "STRASSE"},
      {"s.lower()", "straße"},
      {"s.title()", "Straße"},
      {"s.capitalize()", "Straße"},
      {"s.swapcase()", "sTRASSE"},
      {"s.casefold()", "strasse"},
      {"'ΑΣ ΣΑΣ.'.lower()", "ας σας."},
      {"'ǆ ﬁ ŉ'.upper()", "Ǆ FI ʼN"},
      {"'ǆ ﬁ'.title()", "ǅ Fi"},
      {"\"they're bill's\".title()", "They'Re Bill'S"},
      {"'İ'.lower()|length", "2"},
      {"u.upper()", "東京🙂É"},
      {"'hello wORLD'.capitalize()", "Hello world"},
      {"'ᾳ'.upper()", "ΑΙ"},
      {"'ა'.title()", "ა"},
  });
}

TEST(JinjaStrings, Strip) {
  expect_values({
      {"'  a b \\n'.strip()|tojson", "\"a b\""},
      {"'xxaxx'.strip('x')", "a"},
      {"'xyaxy'.lstrip('yx')", "axy"},
      {"'a\\u00a0\\u2003'.rstrip()|tojson", "\"a\""},
      {"'éaé'.strip('é')", "a"},
      {"''.strip()", ""},
      {"'abc'.removeprefix('ab')", "c"},
      {"'abc'.removesuffix('bc')", "a"},
      {"'abc'.removeprefix('x')", "abc"},
  });
}

TEST(JinjaStrings, Split) {
  expect_values({
      {"' a  b c '.split()", "['a', 'b', 'c']"},
      {"'a,b,,c'.split(',')", "['a', 'b', '', 'c']"},
      {"'a,b,c'.split(',', 1)", "['a', 'b,c']"},
      {"'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"},
      {"'  a b  c '.split(none, 1)", "['a', 'b  c ']"},
      {"'  a b  c '.rsplit(none, 1)", "['  a b', 'c']"},
      {"''.split()", "[]"},
      {"''.split(',')", "['']"},
      {"'a\\nb\\r\\nc\\x0bd\\u2028e'.splitlines()", "['a', 'b', 'c', 'd', 'e']"},
      {"'a\\nb\\n'.splitlines(true)", "['a\\n', 'b\\n']"},
      {"'a=b=c'.partition('=')", "('a', '=', 'b=c')"},
      {"'a=b=c'.rpartition('=')", "('a=b', '=', 'c')"},
      {"'abc'.partition('x')", "('abc', '', '')"},
      {"'aéb'.split('é')", "['a', 'b']"},
  });
}

TEST(JinjaStrings, SearchAndReplace) {
  expect_values({
      {"'banana'.find('an')", "1"},
      {"'banana'.rfind('an')", "3"},
      {"u.find('🙂')", "2"},
      {"'banana'.find('x')", "-1"},
      {"'banana'.find('a', 2)", "3"},
      {"'banana'.find('a', 2, 3)", "-1"},
      {"'banana'.count('an')", "2"},
      {"'aaa'.count('aa')", "1"},
      {"'abc'.count('')", "4"},
      {"'banana'.replace('an', 'AN')", "bANANa"},
      {"'banana'.replace('an', '', 1)", "bana"},
      {"'abc'.replace('', '-')", "-a-b-c-"},
      {"'abc'.startswith('ab')", "True"},
      {"'abc'.startswith(('x', 'a'))", "True"},
      {"'abc'.endswith('bc', 1)", "True"},
      {"'abc'.startswith('b', 1)", "True"},
      {"'abc'.index('c')", "2"},
      {"'-'.join(['a', 'b'])", "a-b"},
      {"''.join([])", ""},
      {"u.startswith('東')", "True"},
  });
}

TEST(JinjaStrings, Predicates) {
  expect_values({
      {"'12'.isdigit()", "True"},
      {"'²'.isdigit()", "True"},
      {"'²'.isdecimal()", "False"},
      {"'½'.isnumeric()", "True"},
      {"'aé'.isalpha()", "True"},
      {"'a1'.isalnum()", "True"},
      {"' \\n'.isspace()", "True"},
      {"'Ab'.istitle()", "True"},
      {"'ABC'.isupper()", "True"},
      {"'1'.islower()", "False"},
      {"'a_1'.isidentifier()", "True"},
      {"'1a'.isidentifier()", "False"},
      {"'a\\n'.isprintable()", "False"},
      {"''.isalpha()", "False"},
      {"'é'.isascii()", "False"},
  });
}

TEST(JinjaStrings, Padding) {
  expect_values({
      {"'ab'.center(5, '*')", "**ab*"},
      {"'ab'.center(6)|tojson", "\"  ab  \""},
      {"'abc'.center(6, '-')", "-abc--"},
      {"'a'.ljust(3, '.')", "a.."},
      {"'a'.rjust(3, '.')", "..a"},
      {"'-42'.zfill(6)", "-00042"},
      {"'é'.center(4, '🙂')", "🙂é🙂🙂"},
      {"'a\\tb'.expandtabs(4)|tojson", "\"a   b\""},
  });
}

TEST(JinjaStrings, Percent) {
  expect_values({
      {"'%s %r %a' % ('é', 'é', 'é')", "é 'é' '\\xe9'"},
      {"'%5s|%-5s|%.2s' % ('ab', 'ab', 'abc')", "   ab|ab   |ab"},
      {"'%d %i %5d %-5d| %05d %+d' % (1, 2, 3, 4, 5, 6)", "1 2     3 4    | 00005 +6"},
      {"'%x %X %#x %o %#o' % (255, 255, 255, 8, 8)", "ff FF 0xff 10 0o10"},
      {"'%f %.2f %8.3f %e %.1E %g %G' % (1.5, 2.675, 3.14159, 12345.678, 0.00012, 1e-10, 1e20)",
       "1.500000 2.67    3.142 1.234568e+04 1.2E-04 1e-10 1E+20"},
      {"'%(a)s-%(b)03d' % {'a': 1, 'b': 2}", "1-002"},
      {"'%%'  % ()", "%"},
      {"'%c%c' % (65, 'é')", "Aé"},
      {"'%s' % 5", "5"},
      {"'%s' % [1]", "[1]"},
      {"'%d' % 3.99", "3"},
      {"'%.3d' % 5", "005"},
      {"'%*d' % (5, 3)", "    3"},
      {"'% d' % 5", " 5"},
      {"'%g' % 100000", "100000"},
      {"'%g' % 1000000", "1e+06"},
      {"'%#g' % 1", "1.00000"},
  });
}

TEST(JinjaStrings, Braces) {
  expect_values({
      {"'{} {}'.format(1, 'a')", "1 a"},
      {"'{1}{0}'.format('a', 'b')", "ba"},
      {"'{a.role}{b[0]}'.format(a=ms[0], b=xs)", "user3"},
      {"'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')", "    a|b    |  c  |***d***"},
      {"'{:5d}|{:05d}|{:+d}|{:,}|{:_}'.format(1, 2, 3, 1234567, 1234567)",
       "    1|00002|+3|1,234,567|1_234_567"},
      {"'{:x} {:#x} {:b} {:#o} {:X}'.format(255, 255, 5, 8, 171)", "ff 0xff 101 0o10 AB"},
      {"'{:.2f} {:8.3f} {:e} {:g} {:%} {:.1%}'.format(2.675, 3.14159, 12345.678, 1e-10, 0.5, "
       "0.123)",
       "2.67    3.142 1.234568e+04 1e-10 50.000000% 12.3%"},
      {"'{:.3} {:.10} {}'.format(1234.5678, 1234.5678, 1234.5)", "1.23e+03 1234.5678 1234.5"},
      {"'{!r:>6}|{!s}|{!a}'.format('é', 'é', 'é')", "   'é'|é|'\\xe9'"},
      {"'{{}} {{{}}}'.format(1)", "{} {1}"},
      {"'{:{}}|'.format('a', 4)", "a   |"},
      {"'{:.2}'.format('abc')", "ab"},
      {"'{:c}'.format(233)", "é"},
      {"'{:012,.2f}'.format(1234.5)", "0,001,234.50"},
      {"'{:.3}'.format(1e20)", "1e+20"},
      {"'{:.1}'.format(12.0)", "1e+01"},
      {"'{:.4}'.format(12.0)", "12.0"},
      {"'{a}'.format_map({'a': 5})", "5"},
      {"'{:é^5}'.format('x')", "ééxéé"},
  });
}

TEST(JinjaStrings, Repr) {
  expect_values({
      {"['a\\u00adb', 'tab\\t', 'q\\'\"', '\\x7f', '\\u2028', '🙂', '\\U000e0001']",
       "['a\\xadb', 'tab\\t', 'q\\'\"', '\\x7f', '\\u2028', '🙂', '\\U000e0001']"},
      {"[1.0, 1e100, -0.0]", "[1.0, 1e+100, -0.0]"},
      {"{'k': ('v',)}", "{'k': ('v',)}"},
      {"[none, true]", "[None, True]"},
      {"[range(3), range(1, 9, 2)]", "[range(0, 3), range(1, 9, 2)]"},
      {"[missing]", "[Undefined]"},
  });
}

TEST(JinjaStrings, Length) {
  expect_values({
      {"u|length", "4"},
      {"s|length", "6"},
      {"'e\\u0301'|length", "2"},
      {"u|list", "['東', '京', '🙂', 'é']"},
      {"u|reverse", "é🙂京東"},
      {"u|first ~ u|last", "東é"},
  });
}

TEST(JinjaStrings, Errors) {
  expect_errors({
      "'%d' % 'a'",         "'%s %s' % ('a',)",  "'%s' % ('a', 'b')",    "'%z' % 1",
      "'%(a)s' % 1",        "'{}'.format()",     "'{'.format(1)",        "'}'.format(1)",
      "'{:d}'.format('a')", "'{:q}'.format(1)",  "'{0}{}'.format(1, 2)", "'a'.join([1])",
      "'a'.split('')",      "'abc'.index('x')",  "'a'.center('b')",      "'a'.replace('a')",
      "'a'.upper(1)",       "'a'.startswith(1)", "'{:=5}'.format('a')",  "'{a}'.format(b=1)",
  });
}

}  // namespace
}  // namespace tutti::jinja

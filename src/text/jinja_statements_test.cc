// Statements: loops, scopes, macros, and what white space around tags becomes.
// The expected texts are those of Python's jinja2.
#include <gtest/gtest.h>

#include "text/jinja_test_support.h"

namespace tutti::jinja {
namespace {

TEST(JinjaStatements, Loops) {
  expect_texts({
      {"{% for i in xs %}{{ i }}{% endfor %}", "312"},
      {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
      {"{% for i in xs if i > 1 %}{{ loop.index }}{{ i }}{{ loop.length }}{% endfor %}", "132222"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "b=1;a=[None, True];"},
      {"{% for k in d %}{{ k }}{% endfor %}", "ba"},
      {"{% for c in u %}[{{ c }}]{% endfor %}", "[東][京][🙂][é]"},
      {"{% for i in missing %}x{% else %}undefined{% endfor %}", "undefined"},
      {"{% for i in xs %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first "
       "}}{{ loo"
       "p.last }}|{% endfor %}",
       "032TrueFalse|121FalseFalse|210FalseTrue|"},
      {"{% for i in xs %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
       "<3>1 3<1>2 1<2> "},
      {"{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle('a', 'b') }} {% endfor %}",
       "Truea Falseb Truea "},
      {"{% for i in xs %}{% if loop.first %}{% continue %}{% endif %}{{ i }}{% endfor %}", "12"},
      {"{% for i in xs %}{{ i }}{% break %}{% endfor %}", "3"},
      {"{% for i in [1] %}{% continue %}{% else %}else runs{% endfor %}", "else runs"},
      {"{% for i in [1, [2, [3]]] recursive %}{{ loop.depth }}{% if i is iterable %}({{ loop(i) "
       "}}){% e"
       "lse %}{{ i }}{% endif %} {% endfor %}",
       "11 1(22 2(33 ) ) "},
      {"{% for i in xs %}{{ loop }}{% endfor %}",
       "<LoopContext 1/3><LoopContext 2/3><LoopContext 3/3>"},
      {"{% for i in range(4) if i is odd %}{{ loop.last }}{% endfor %}", "FalseTrue"},
      {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
      {"{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor "
       "%}",
       "1231 1232 1233 "},
      {"{% for i in xs|map('string') %}{{ loop.length }}{{ i }}{% endfor %}", "333132"},
  });
}

TEST(JinjaStatements, Scopes) {
  expect_texts({
      {"{% set a = 1 %}{% for i in xs %}{% set a = i %}{{ a }}{% endfor %}{{ a }}", "3121"},
      {"{% for i in xs %}{{ a }}{% set a = i %}{% endfor %}|{{ a }}", "|"},
      {"{% set a = 1 %}{% if true %}{% set a = 2 %}{% endif %}{{ a }}", "2"},
      {"{% if false %}{% set n = 2 %}{% endif %}{{ n }}", "7"},
      {"{{ n }}{% set n = 1 %}{{ n }}", "71"},
      {"{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% set n = 1 %}{{ m() }}", "1"},
      {"{% set ns = namespace(a=0) %}{% for i in xs %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a "
       "}}",
       "6"},
      {"{% with a = 1, b = n %}{{ a }}{{ b }}{% set a = 2 %}{{ a }}{% endwith %}{{ a }}", "172"},
      {"{% set a, b = 1, [2] %}{{ a }}{{ b }}", "1[2]"},
      {"{% set a %}x{{ n }}{% endset %}{{ a }}", "x7"},
      {"{% set a | upper %}x{{ s }}{% endset %}{{ a }}", "XSTRASSE"},
      {"{% for i in [1, 2] %}{% set a = (a or 0) + i %}{{ a }}{% endfor %}", "12"},
      {"{% filter upper %}a{% set q = 1 %}{% endfilter %}{{ q }}", "A"},
      {"{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}", "1"},
      {"{% set i = 9 %}{% for i in xs %}{% endfor %}{{ i }}", "9"},
      {"{% set f %}{% for i in xs %}{{ i }}{% endfor %}{% endset %}{{ f|length }}", "3"},
      {"{% block b %}{{ n }}{% set n = 1 %}{% endblock %}{{ n }}", "77"},
  });
}

TEST(JinjaStatements, Macros) {
  expect_texts({
      {"{% macro m(a, b='x', c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ "
       "m(b="
       "3, a=4) }} {{ m() }}",
       "1xx 122 433 xx"},
      {"{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k=4) }}",
       "1(2, 3){'k': 4}"},
      {"{% macro m() %}[{{ caller('x') }}]{% endmacro %}{% call(a) m() %}{{ a }}{{ n }}{% endcall "
       "%}",
       "[x7]"},
      {"{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "False"},
      {"{% macro fact(i) %}{{ 1 if i < 2 else i * fact(i - 1)|int }}{% endmacro %}{{ fact(5) }}",
       "120"},
      {"{% macro m(a) %}{% endmacro %}{{ m }}{{ m.name }}{{ m.arguments }}", "<Macro 'm'>m('a',)"},
      {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}late{% endmacro %}{{ a() }}", "late"},
      {"{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}", "FalseTrue"},
      {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'a': 2}) }}", "12"},
      {"{% macro o() %}{% macro i(x) %}<{{ x }}>{% endmacro %}{{ i(1) }}{% endmacro %}{{ o() }}{{ "
       "i is "
       "defined }}",
       "<1>False"},
  });
}

TEST(JinjaStatements, Conditions) {
  expect_texts({
      {"{% if 0 %}a{% elif '' %}b{% elif 1 %}c{% else %}d{% endif %}", "c"},
      {"{% if xs and not missing %}y{% endif %}", "y"},
      {"{% if false and n|nosuch %}x{% endif %}y", "y"},
      {"{% print 1, 'a' %}", "1a"},
  });
}

TEST(JinjaStatements, WhiteSpace) {
  expect_texts({
      {"a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  b\nc"},
      {"a {%- if true -%} \n b {%- endif -%} c", "abc"},
      {"  {%+ if true %}x{% endif %}", "  x"},
      {"{% if true +%}\nx{% endif %}", "\nx"},
      {"a\n{# note #}\nb", "a\nb"},
      {"a {#- note -#} b", "ab"},
      {"  {{ n }}\n", "  7"},
      {"x\n\n", "x\n"},
      {"{{- n -}} \n y", "7y"},
      {"\n{{ n }}", "\n7"},
      {"{% raw %}{{ x }}{% if %}{% endraw %}", "{{ x }}{% if %}"},
      {"a\n  {% raw -%}  b{% endraw %}\nc", "a\nbc"},
      {"a\r\nb\rc\n{{ '\r\n'|length }}", "a\nb\nc\n1"},
      {"{% set a = 1 -%}\n\n x", "x"},
      {"  {% set a = 1 %}{{ a }}", "1"},
      {"x {% set a = 1 %}\ny", "x y"},
      {"{{ '{{' }}{{ \"%}\" }}{{ {'a': {'b': 1}}['a'] }}", "{{%}{'b': 1}"},
      {"\302\240{%- if true %}x{% endif %}", "x"},
      {"{%if true%}a{%endif%}", "a"},
      {"{% for i in xs: %}{{ i }}{% endfor %}", "312"},
      {"  {% if true %}{% endif %}  z", "  z"},
  });
}

}  // namespace
}  // namespace tutti::jinja

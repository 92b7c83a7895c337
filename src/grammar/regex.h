// Regular expressions as expressions of a grammar: the common part of the dialects of JavaScript, Python and Rust. Characters,
// `.`, classes, \d \w \s and their opposites, groups of any kind that only group, `|`, and `* + ? {n} {n,} {n,m}`, lazy or not
// (the language is the same). `^` and `$` may stand at the two ends of an alternative. Not there, and named in the error:
// look-around, back-references, word boundaries, flags, \p.
#pragma once

#include <string_view>

#include "grammar/expression.h"

namespace tutti::grammar {

enum class RegexMatch : uint8_t {
  kWhole,   // the pattern is the whole text
  kSearch,  // the text contains it somewhere, unless `^` and `$` say where
};

// Throws InvalidGrammar.
ExprPtr parse_regex(std::string_view pattern, RegexMatch match, Encoding encoding = Encoding::kPlain);

}  // namespace tutti::grammar

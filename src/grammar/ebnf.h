// Written grammars: GBNF, as llama.cpp has it, which is also the EBNF of XGrammar. `name ::= ...`, beginning with `root`;
// "texts" and 'texts' with escapes, [classes], `.`, ( ), `|`, `* + ? {n,m}`, and comments after `#`.
#pragma once

#include <string_view>

#include "grammar/expression.h"

namespace tutti::grammar {

// Throws InvalidGrammar.
Rules parse_ebnf(std::string_view text);

}  // namespace tutti::grammar

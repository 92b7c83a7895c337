// Shorthand of this module's tests.
#pragma once

#include "grammar/ebnf.h"
#include "grammar/grammar.h"
#include "grammar/json_schema.h"
#include "grammar/regex.h"
#include "grammar/testing.h"

namespace tutti::grammar {

inline std::unique_ptr<Automaton> automaton_of(const Rules& rules) {
  return std::make_unique<Automaton>(Grammar::from_bytes(compile(rules).to_bytes()), test_vocabulary());
}
inline std::unique_ptr<Automaton> of_regex(std::string_view pattern, RegexMatch match = RegexMatch::kWhole) {
  Rules rules;
  rules.declare("pattern");
  rules.define(0, parse_regex(pattern, match));
  return automaton_of(rules);
}
inline std::unique_ptr<Automaton> of_schema(const std::string& schema, const JsonOptions& options = {}) {
  return automaton_of(json_schema_rules(parse_json(schema, "schema"), options));
}
inline std::unique_ptr<Automaton> of_ebnf(std::string_view text) { return automaton_of(parse_ebnf(text)); }

// What the error says, "" when there is none.
template <typename Make>
std::string error_of(const Make& make) {
  try {
    make();
  } catch (const InvalidGrammar& e) {
    return e.what();
  }
  return "";
}

}  // namespace tutti::grammar

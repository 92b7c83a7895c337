// JSON schemas as grammars. Every text of the grammar validates against the schema; not every text that validates is one of the
// grammar: members come in the order of `properties`, members that the schema does not name only where
// `additionalProperties` asks for them or nothing is said about any, and whitespace is that of an indented text.
// What cannot be kept to is refused, with the name of the keyword.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "grammar/expression.h"

namespace tutti::grammar {

struct JsonOptions {
  bool any_whitespace = true;                     // false: ", " and ": ", and none elsewhere
  std::optional<std::string> whitespace_pattern;  // in place of both
};

// Throws InvalidGrammar.
Rules json_schema_rules(const Json& schema, const JsonOptions& options);
// Any JSON object.
Rules json_object_rules(const JsonOptions& options);

}  // namespace tutti::grammar

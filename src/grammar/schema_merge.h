// The keywords of JSON schemas: which are known, and two schemas that both hold as one.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tutti::grammar {

// Throws InvalidGrammar that names a keyword that is not supported; annotations (title, description, default, ...) are fine.
void check_keywords(const Json& schema);
// Whether a keyword restricts what is valid.
bool is_constraint(std::string_view keyword);
// Whether any keyword but these does.
bool constrains_beside(const Json& schema, std::initializer_list<const char*> except);
Json without(const Json& schema, std::initializer_list<const char*> keys);

// What `type` names, or what the other keywords are about when it is not there; empty = anything. Throws InvalidGrammar.
std::vector<std::string> types_of(const Json& schema);

// Throws InvalidGrammar where the two cannot be written as one.
Json merge_schemas(const Json& a, const Json& b);

}  // namespace tutti::grammar

// Gives every variable of a parsed template its slot, by the scoping rules that jinja2's compiler
// has: what a scope assigns is its own and starts as a copy of the variable outside; what it only
// reads is found outside or among the template's variables. Also refuses what only shows in
// context: unknown filters, break outside a loop.
#pragma once

#include "text/jinja_ast.h"

namespace tutti::jinja {

// Throws ConfigError with line and column.
void resolve(Template& parsed);

}  // namespace tutti::jinja

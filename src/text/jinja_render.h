// From a compiled template and JSON variables to text. Called by ChatTemplate, on any thread.
#pragma once

#include <string>

#include "base/json.h"
#include "text/jinja_ast.h"
#include "text/jinja_runtime.h"

namespace tutti::jinja {

// Throws InvalidRequest: with the template's own message when it called raise_exception(), else
// with the line.
std::string render(const Template& parsed, const Json& context, Runtime& rt);

}  // namespace tutti::jinja

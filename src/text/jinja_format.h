// Python's two ways of formatting: "..." % values and "...".format(values). Stateless; any thread.
#pragma once

#include <string>

#include "text/jinja_value.h"

namespace tutti::jinja {

// `values` is a tuple, a dict (for "%(name)s") or a single value.
std::string percent_format(const Value& format, const Value& values, Runtime& rt);

// str.format(): fields by position or name, attributes and items inside them, conversions, format
// specs.
std::string brace_format(const std::string& format, const Args& args, Runtime& rt);

}  // namespace tutti::jinja

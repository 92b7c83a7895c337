// String literals of templates. Stateless; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti::jinja {

// Resolves the escapes of a literal's body as Python's "unicode-escape" does; returns what is
// wrong, or nothing.
std::optional<std::string> unescape(std::string_view body, std::string& out);

}  // namespace tutti::jinja

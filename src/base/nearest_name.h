// The name that was probably meant, for messages like "not supported: X; nearest: Y".
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tutti {

// The candidate with the fewest single-character edits from `name`, the first of equals; empty when there is none.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);
// The same when it is so near that `name` may be a misspelling of it; otherwise empty.
std::string likely_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace tutti

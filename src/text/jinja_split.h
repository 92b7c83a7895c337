// Cutting, padding and replacing text as Python's str methods do. Stateless; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_runtime.h"

namespace tutti::jinja {

enum class Align { kLeft, kRight, kCenter };

// Without white space at the chosen ends; with `chars`, without any of those characters.
std::string_view strip(std::string_view text, bool left, bool right);
std::string_view strip(std::string_view text, std::string_view chars, bool left, bool right);

// At most `most` cuts, all when negative. split_space cuts at runs of white space and drops empty
// parts.
std::vector<std::string_view> split_space(std::string_view text, int64_t most, bool from_right);
std::vector<std::string_view> split_on(std::string_view text, std::string_view separator,
                                       int64_t most, bool from_right);

std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         int64_t most, Runtime& rt);
std::string repeat_text(std::string_view text, int64_t times, Runtime& rt);
// `width` and the fill count in code points.
std::string pad(std::string_view text, int64_t width, std::string_view fill, Align align,
                Runtime& rt);
// str.islower() / str.isupper(): some cased character, and all of them of the `wanted` case.
bool is_cased(std::string_view text, uint16_t wanted);

}  // namespace tutti::jinja

// Text as Python's str sees it: code points, their properties and case mappings. Used by the Jinja
// renderer and the Lowercase normaliser. Stateless; any thread. All strings are valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::jinja {

// What str.isalpha() and its kin say of a character.
enum CharFlag : uint16_t {
  kAlpha = 1,
  kDecimal = 2,
  kDigit = 4,
  kNumeric = 8,
  kUpper = 16,
  kLower = 32,
  kTitle = 64,
  kPrintable = 128,
  kIdentifierStart = 256,
  kIdentifierPart = 512,
  kSpace = 1024,
  kCaseIgnorable = 2048,
  kCased = 4096,
};

uint16_t char_flags(uint32_t code_point);
inline bool has_flag(uint32_t code_point, uint16_t flags) {
  return (char_flags(code_point) & flags) != 0;
}

// The code point that starts at `pos`, which is moved behind it.
uint32_t next_code_point(std::string_view text, size_t& pos);
void append_code_point(std::string& out, uint32_t code_point);
std::vector<uint32_t> code_points(std::string_view text);
std::string encode(const uint32_t* begin, const uint32_t* end);
inline std::string encode(const std::vector<uint32_t>& points) {
  return encode(points.data(), points.data() + points.size());
}
bool is_ascii(std::string_view text);
size_t code_point_count(std::string_view text);
// Byte offset of the first byte that is not valid UTF-8, npos when all is well.
size_t find_invalid_utf8(std::string_view text);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title()
std::string to_capitalized(std::string_view text);  // str.capitalize()
std::string swap_case(std::string_view text);
std::string to_casefold(std::string_view text);

// Bytes of white space at the start / end of `text`.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

// str.splitlines().
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

}  // namespace tutti::jinja

// The alphabet of printable characters that byte-level vocabularies spell bytes with ("Ġ" for a space). Stateless.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti {

// "Ġhello" -> " hello"; none when a character is not in the alphabet.
std::optional<std::string> bytes_from_alphabet(std::string_view spelled);
// " hello" -> "Ġhello".
std::string alphabet_from_bytes(std::string_view bytes);

}  // namespace tutti

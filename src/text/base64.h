// Base64, as vocabularies write bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tutti {

// The bytes, or nothing when `text` is not base64. Padding may be missing.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace tutti

// The only include of the JSON library. Outside input is parsed with parse_json(), which bounds the depth and turns
// the library's exceptions into an IoError with the name of the source.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tutti {

// Keys keep the order of the source: templates iterate over objects, and users see their own order again.
using Json = nlohmann::ordered_json;

// Parses `text`. Throws IoError("<source>: not valid JSON at byte N: ...") on errors and on nesting beyond `max_depth`.
Json parse_json(std::string_view text, const std::string& source, int max_depth = 128);

// Reads and parses a file. Throws IoError naming the path.
Json read_json_file(const std::string& path);

// One line, invalid UTF-8 replaced.
std::string dump_json(const Json& value);

}  // namespace tutti

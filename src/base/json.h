// The only include of the JSON library. Outside input is parsed with parse_json(), which bounds the depth and turns
// the library's exceptions into an IoError with the name of the source.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tutti {

// Keys keep the order of the source: templates iterate over objects, and users see their own order again.
using Json = nlohmann::ordered_json;

// Objects sorted by key and found in log n: for objects with very many keys, such as a vocabulary, where Json would take
// quadratic time.
using SortedJson = nlohmann::json;

// Parses `text`. Throws IoError("<source>: not valid JSON at byte N: ...") on errors and on nesting beyond `max_depth`.
Json parse_json(std::string_view text, const std::string& source, int max_depth = 128);

SortedJson parse_sorted_json(std::string_view text, const std::string& source, int max_depth = 128);

// Reads and parses a file. Throws IoError naming the path.
Json read_json_file(const std::string& path);

// One line, invalid UTF-8 replaced.
std::string dump_json(const Json& value);

}  // namespace tutti

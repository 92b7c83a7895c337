#include "base/json.h"

#include "base/error.h"
#include "base/file.h"

namespace tutti {
namespace {

// What the parser says without its own number, and without the place, which is given in bytes.
std::string reason_in(std::string_view what) {
  if (const size_t number = what.find("] "); what.starts_with("[") && number != std::string_view::npos) what.remove_prefix(number + 2);
  if (const size_t place = what.find(": "); what.starts_with("parse error at ") && place != std::string_view::npos) what.remove_prefix(place + 2);
  constexpr size_t kMost = 300;  // of what was read last the parser repeats all
  if (what.size() <= kMost) return std::string(what);
  size_t end = kMost;
  while (end > 0 && (what[end] & 0xC0) == 0x80) --end;  // not within a character
  return std::string(what.substr(0, end)) + "...";
}

template <typename Value>
Value parse(std::string_view text, const std::string& source, int max_depth) {
  // Bounds the depth while parsing, so that "[[[[..." cannot exhaust the stack later.
  const auto limit = [&](int depth, typename Value::parse_event_t event, Value&) {
    const bool opens = event == Value::parse_event_t::object_start || event == Value::parse_event_t::array_start;
    if (opens && depth >= max_depth) {
      throw IoError(source + ": JSON nested deeper than " + std::to_string(max_depth) + " levels");
    }
    return true;
  };
  try {
    return Value::parse(text.begin(), text.end(), limit);
  } catch (const typename Value::parse_error& e) {
    throw IoError(source + ": not valid JSON at byte " + std::to_string(e.byte) + ": " + reason_in(e.what()));
  } catch (const typename Value::exception& e) {
    throw IoError(source + ": not valid JSON: " + reason_in(e.what()));
  }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source, int max_depth) {
  return parse<Json>(text, source, max_depth);
}

SortedJson parse_sorted_json(std::string_view text, const std::string& source, int max_depth) {
  return parse<SortedJson>(text, source, max_depth);
}

Json read_json_file(const std::string& path) { return parse_json(read_file(path), path); }

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tutti

#include "base/json.h"

#include "base/error.h"
#include "base/file.h"

namespace tutti {
namespace {

// Bounds the depth while parsing, so that "[[[[..." cannot exhaust the stack later.
class DepthLimit {
 public:
  DepthLimit(int max_depth, const std::string& source) : max_depth_(max_depth), source_(source) {}

  bool operator()(int depth, Json::parse_event_t event, Json&) const {
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= max_depth_) {
      throw IoError(source_ + ": JSON nested deeper than " + std::to_string(max_depth_) + " levels");
    }
    return true;
  }

 private:
  int max_depth_;
  const std::string& source_;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& source, int max_depth) {
  try {
    return Json::parse(text.begin(), text.end(), DepthLimit(max_depth, source));
  } catch (const Json::parse_error& e) {
    throw IoError(source + ": not valid JSON at byte " + std::to_string(e.byte) + ": " + e.what());
  } catch (const Json::exception& e) {
    throw IoError(source + ": not valid JSON: " + std::string(e.what()));
  }
}

Json read_json_file(const std::string& path) { return parse_json(read_file(path), path); }

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tutti

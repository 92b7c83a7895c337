// The JSON of a request body, with the limits that keep hostile bodies cheap.
#include "base/error.h"
#include "server/field_reader.h"
#include "server/openai_types.h"

namespace tutti {
namespace {

constexpr int kMaxDepth = 64;
// Looking up keys in an object that keeps their order takes time linear in their number, and parsing looks up
// each.
constexpr int kMaxKeysPerObject = 4096;

// Counts the keys of every object: a ':' outside a string follows a key. Cheaper than parsing, and before it.
void check_object_sizes(std::string_view body) {
  std::vector<int> keys = {0};
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      keys.push_back(0);
      if (keys.size() > kMaxDepth + 2) throw InvalidRequest("the body is JSON nested deeper than 64 levels");
    } else if ((c == '}' || c == ']') && keys.size() > 1) {
      keys.pop_back();
    } else if (c == ':' && ++keys.back() > kMaxKeysPerObject) {
      throw InvalidRequest("the body has a JSON object of more than 4096 keys");
    }
  }
}

}  // namespace

Json parse_request_body(std::string_view body) {
  if (body.empty()) throw InvalidRequest("the request has no body: a JSON object is needed");
  check_object_sizes(body);
  Json json;
  try {
    json = parse_json(body, "the body", kMaxDepth);
  } catch (const IoError& e) {
    throw InvalidRequest(e.what());
  }
  if (!json.is_object()) throw InvalidRequest("the body must be a JSON object, not " + describe_json(json));
  return json;
}

}  // namespace tutti

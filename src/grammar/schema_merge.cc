#include "grammar/schema_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "grammar/expression.h"

namespace tutti::grammar {
namespace {

constexpr std::array<std::string_view, 7> kTypes = {"null", "boolean", "integer", "number", "string", "array", "object"};
// Those that say something about one type of value only.
constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kOfType = {{
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
}};
constexpr std::array<std::string_view, 8> kOthers = {
    "exclusiveMaximum", "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"};
constexpr std::array<std::string_view, 13> kAnnotations = {"title",     "description", "default",    "examples",   "example",
                                                           "$schema",   "$id",         "$comment",   "deprecated", "readOnly",
                                                           "writeOnly", "$defs",       "definitions"};

bool is_annotation(std::string_view key, const Json& value) {
  if (std::find(kAnnotations.begin(), kAnnotations.end(), key) != kAnnotations.end()) return true;
  if (key == "discriminator" || key.starts_with("x-")) return true;  // OpenAPI's
  return key == "uniqueItems" && value == false;
}

Json intersection(const Json& a, const Json& b) {
  Json both = Json::array();
  for (const Json& v : a) {
    if (std::find(b.begin(), b.end(), v) != b.end()) both.push_back(v);
  }
  return both;
}

void merge_types(Json& into, const Json& other) {
  std::vector<std::string> both;
  const std::vector<std::string> left = types_of({{"type", into}}), right = types_of({{"type", other}});
  for (const std::string& a : left) {
    for (const std::string& b : right) {
      if (a == b || (a == "integer" && b == "number")) both.push_back(a);
      if (a == "number" && b == "integer") both.push_back(b);
    }
  }
  if (both.empty()) throw InvalidGrammar("no value can be of two types at once: " + dump_json(into) + " and " + dump_json(other));
  into = both;
}

void refuse_closed(const Json& closed, const Json& other) {
  const auto additional = closed.find("additionalProperties");
  if (additional == closed.end() || *additional != false || !other.contains("properties")) return;
  for (const auto& [name, unused] : other["properties"].items()) {
    if (!closed.contains("properties") || !closed["properties"].contains(name)) {
      throw InvalidGrammar("`additionalProperties` false beside another schema's `properties` is not supported");
    }
  }
}

}  // namespace

bool is_constraint(std::string_view keyword) {
  return std::any_of(kOfType.begin(), kOfType.end(), [&](const auto& k) { return k.first == keyword; }) ||
         std::find(kOthers.begin(), kOthers.end(), keyword) != kOthers.end();
}

void check_keywords(const Json& schema) {
  for (const auto& [key, value] : schema.items()) {
    if (!is_constraint(key) && !is_annotation(key, value))
      throw InvalidGrammar(fmt::format("the keyword `{}` is not supported", key.substr(0, 80)));
  }
}

bool constrains_beside(const Json& schema, std::initializer_list<const char*> except) {
  for (const auto& [key, value] : schema.items()) {
    if (!is_annotation(key, value) && std::find(except.begin(), except.end(), key) == except.end()) return true;
  }
  return false;
}

Json without(const Json& schema, std::initializer_list<const char*> keys) {
  Json rest = Json::object();
  for (const auto& [key, value] : schema.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) rest[key] = value;
  }
  return rest;
}

std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> types;
  const auto given = schema.find("type");
  if (given == schema.end()) {
    for (const auto& [keyword, type] : kOfType) {
      if (schema.contains(keyword)) return {std::string(type)};
    }
    return schema.contains("exclusiveMaximum") ? std::vector<std::string>{"number"} : types;
  }
  const auto take = [&](const Json& type) {
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    if (std::find(kTypes.begin(), kTypes.end(), name) == kTypes.end()) {
      throw InvalidGrammar(fmt::format("`type` must be one of {}, or a list of these, not {}", fmt::join(kTypes, ", "),
                                       dump_json(type).substr(0, 60)));
    }
    if (std::find(types.begin(), types.end(), name) == types.end()) types.push_back(name);
  };
  if (given->is_array() && !given->empty()) {
    for (const Json& type : *given) take(type);
  } else {
    take(*given);
  }
  return types;
}

Json merge_schemas(const Json& a, const Json& b) {
  if (a.is_boolean()) return a.get<bool>() ? b : a;
  if (b.is_boolean()) return b.get<bool>() ? a : b;
  if (!a.is_object() || !b.is_object()) throw InvalidGrammar("a schema must be an object, true or false");
  check_keywords(a);
  check_keywords(b);
  refuse_closed(a, b);
  refuse_closed(b, a);
  Json all = a;
  for (const auto& [key, value] : b.items()) {
    if (is_annotation(key, value)) continue;
    if (!all.contains(key)) {
      all[key] = value;
      continue;
    }
    Json& known = all[key];
    if (known == value) continue;
    if (key == "type") {
      merge_types(known, value);
    } else if (key == "properties" && known.is_object() && value.is_object()) {
      for (const auto& [name, property] : value.items()) {
        known[name] = known.contains(name) && known[name] != property ? Json{{"allOf", {known[name], property}}} : property;
      }
    } else if (key == "required" && known.is_array() && value.is_array()) {
      for (const Json& name : value) {
        if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
      }
    } else if (key == "enum" && known.is_array() && value.is_array()) {
      known = intersection(known, value);
      if (known.empty()) throw InvalidGrammar("two `enum` have no value in common");
    } else if ((key.starts_with("min") || key == "exclusiveMinimum") && known.is_number() && value.is_number()) {
      if (value > known) known = value;
    } else if ((key.starts_with("max") || key == "exclusiveMaximum") && known.is_number() && value.is_number()) {
      if (value < known) known = value;
    } else if (key == "items") {
      known = Json{{"allOf", {known, value}}};
    } else {
      throw InvalidGrammar(fmt::format("two schemas that both hold have a different `{}`: this is not supported", key));
    }
  }
  return all;
}

}  // namespace tutti::grammar

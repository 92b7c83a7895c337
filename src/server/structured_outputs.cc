#include "server/structured_outputs.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "grammar/automaton.h"
#include "grammar/ebnf.h"
#include "grammar/grammar.h"
#include "grammar/json_schema.h"
#include "grammar/json_text.h"
#include "grammar/regex.h"

namespace tutti {
namespace {

constexpr size_t kMaxSourceBytes = 256 * 1024;

// One of the ways to say what the answer is.
struct Constraint {
  enum class Kind { kSchema, kObject, kRegex, kChoice, kGrammar };
  Kind kind = Kind::kObject;
  std::string field;  // for messages
  Json value;
};

grammar::Rules rules_of(const Constraint& c, const grammar::JsonOptions& options) {
  using Kind = Constraint::Kind;
  grammar::Rules rules;
  switch (c.kind) {
    case Kind::kSchema:
      return grammar::json_schema_rules(c.value, options);
    case Kind::kObject:
      return grammar::json_object_rules(options);
    case Kind::kGrammar:
      return grammar::parse_ebnf(c.value.get_ref<const std::string&>());
    case Kind::kRegex:
      rules.declare("the pattern");
      rules.define(0, grammar::parse_regex(c.value.get_ref<const std::string&>(), grammar::RegexMatch::kWhole));
      return rules;
    case Kind::kChoice:
      rules.declare("the choice");
      rules.define(0, grammar::any_text(c.value.get<std::vector<std::string>>()));
      return rules;
  }
  return rules;
}

GrammarBytes compiled(const Constraint& c, const grammar::JsonOptions& options = {}) {
  try {
    const size_t size = c.value.is_string() ? c.value.get_ref<const std::string&>().size() : dump_json(c.value).size();
    if (size > kMaxSourceBytes) throw grammar::InvalidGrammar(fmt::format("it has {} bytes, at most {} are taken", size, kMaxSourceBytes));
    grammar::Grammar grammar = grammar::compile(rules_of(c, options));
    std::string bytes = grammar.to_bytes();
    if (bytes.size() > grammar::kMaxBytes) {
      throw grammar::InvalidGrammar(fmt::format("it is too large: {} bytes when compiled, at most {} are taken", bytes.size(), grammar::kMaxBytes));
    }
    static const auto no_tokens = std::make_shared<const grammar::Vocabulary>(std::vector<std::string>());
    if (!grammar::Automaton(std::move(grammar), no_tokens).start_is_whole()) {
      throw grammar::InvalidGrammar("it is too ambiguous: rules that may be empty and call each other give too many ways to read the same text");
    }
    return GrammarBytes(std::move(bytes));
  } catch (const grammar::InvalidGrammar& e) {
    throw InvalidRequest(fmt::format("`{}`: {}", c.field, e.what()), c.field);
  }
}

// A schema, or the text of one.
Json read_schema(const Json& value, const std::string& field) {
  if (value.is_object() || value.is_boolean()) return value;
  if (!value.is_string()) throw InvalidRequest(fmt::format("`{}` must be a JSON schema, not {}", field, describe_json(value)), field);
  Json schema;
  try {
    schema = parse_json(value.get_ref<const std::string&>(), "`" + field + "`", 64);
  } catch (const IoError& e) {
    throw InvalidRequest(e.what(), field);
  }
  if (!schema.is_object() && !schema.is_boolean()) throw InvalidRequest(fmt::format("`{}` must hold a JSON schema", field), field);
  return schema;
}

std::optional<Constraint> read_response_format(const FieldReader& fields) {
  const Json* format = fields.object("response_format");
  if (format == nullptr) return std::nullopt;
  const FieldReader reader(*format, "response_format.");
  const std::string type = reader.string("type").value_or("text");
  if (type == "text") return std::nullopt;
  if (type == "json_object") return Constraint{Constraint::Kind::kObject, "response_format", {}};
  if (type != "json_schema") {
    throw InvalidRequest("`response_format.type` must be \"text\", \"json_object\" or \"json_schema\", not " + describe_json(type), "response_format");
  }
  const Json* described = reader.object("json_schema");
  if (described == nullptr) throw InvalidRequest("`response_format.json_schema` is missing", "response_format");
  const std::string field = "response_format.json_schema.schema";
  const FieldReader inner(*described, "response_format.json_schema.");
  inner.boolean("strict");
  const Json* schema = inner.find("schema");
  if (schema == nullptr) throw InvalidRequest("`" + field + "` is missing", "response_format");
  return Constraint{Constraint::Kind::kSchema, field, read_schema(*schema, field)};
}

// The fields of `structured_outputs`, and those with "guided_" before their name: at most one of them.
class Choices {
 public:
  explicit Choices(std::optional<Constraint> found) : found_(std::move(found)) {}

  void read(const FieldReader& fields, const std::string& where, const std::string& prefix) {
    const auto name = [&](const char* kind) { return prefix + kind; };
    const auto text = [&](const char* kind, Constraint::Kind k) {
      const std::string key = name(kind);
      if (fields.find(key.c_str()) != nullptr) take({k, where + key, *fields.string(key.c_str())});
    };
    if (const std::string key = name("json"); const Json* schema = fields.find(key.c_str())) {
      take({Constraint::Kind::kSchema, where + key, read_schema(*schema, where + key)});
    }
    text("regex", Constraint::Kind::kRegex);
    text("grammar", Constraint::Kind::kGrammar);
    if (const std::string key = name("choice"); fields.find(key.c_str()) != nullptr) {
      const Json* list = fields.array(key.c_str());
      const std::vector<std::string> texts = fields.strings(key.c_str());
      if (list->empty()) throw InvalidRequest(fmt::format("`{}{}` must not be empty", where, key), where + key);
      take({Constraint::Kind::kChoice, where + key, texts});
    }
    if (const std::string key = name("json_object"); fields.boolean(key.c_str()).value_or(false)) {
      take({Constraint::Kind::kObject, where + key, {}});
    }
    if (const std::string key = name("whitespace_pattern"); fields.find(key.c_str()) != nullptr) {
      options_.whitespace_pattern = fields.string(key.c_str());
      whitespace_field_ = where + key;
    }
  }
  void compact() { options_.any_whitespace = false; }

  GrammarBytes compile() const {
    if (options_.whitespace_pattern) compiled({Constraint::Kind::kRegex, whitespace_field_, *options_.whitespace_pattern});
    return found_ ? compiled(*found_, options_) : GrammarBytes();
  }
  bool any() const { return found_.has_value(); }

 private:
  void take(Constraint next) {
    if (found_) {
      throw InvalidRequest(fmt::format("`{}` and `{}` both say what the answer is: give one of them", found_->field, next.field), next.field);
    }
    found_ = std::move(next);
  }

  std::optional<Constraint> found_;
  grammar::JsonOptions options_;
  std::string whitespace_field_;
};

// References within a schema that becomes a part of another one.
void move_references(Json& schema, const std::string& to) {
  if (schema.is_object()) {
    for (auto& [key, value] : schema.items()) {
      if (key == "$ref" && value.is_string() && value.get_ref<const std::string&>().starts_with('#')) {
        value = to + value.get<std::string>().substr(1);
      } else {
        move_references(value, to);
      }
    }
  } else if (schema.is_array()) {
    for (Json& item : schema) move_references(item, to);
  }
}

}  // namespace

GrammarBytes read_structured_outputs(const FieldReader& fields) {
  Choices choices(read_response_format(fields));
  if (const Json* outputs = fields.object("structured_outputs")) {
    constexpr const char* kWhere = "structured_outputs.";
    const FieldReader reader(*outputs, kWhere);
    if (reader.find("structural_tag") != nullptr) {
      throw InvalidRequest("`structured_outputs.structural_tag` is not supported by this server: leave it out", "structured_outputs.structural_tag");
    }
    choices.read(reader, kWhere, "");
    if (!choices.any() && !outputs->empty()) {
      throw InvalidRequest("`structured_outputs` needs one of json, json_object, regex, choice and grammar", "structured_outputs");
    }
    if (reader.boolean("disable_any_whitespace").value_or(false)) choices.compact();
    if (reader.boolean("disable_additional_properties").value_or(false) && outputs->contains("json")) {
      // Only members that a schema asks for are written; where it asks for any, the two contradict each other.
      throw InvalidRequest("`structured_outputs.disable_additional_properties` is not supported: set `additionalProperties` in the schema",
                           "structured_outputs.disable_additional_properties");
    }
  }
  choices.read(fields, "", "guided_");
  return choices.compile();
}

GrammarBytes grammar_of_tools(const ChatPrompt& chat) {
  const auto parameters_of = [](const Json& function) {
    const auto given = function.find("parameters");
    return given == function.end() || given->is_null() ? Json{{"type", "object"}} : *given;
  };
  if (!chat.named_tool.empty()) {
    for (const Json& tool : chat.tools) {
      const Json& function = tool["function"];
      if (function.value("name", Json()) != chat.named_tool) continue;
      return compiled({Constraint::Kind::kSchema, "tools." + chat.named_tool + ".parameters", parameters_of(function)});
    }
  }
  Json calls = Json::array(), definitions = Json::object();
  for (size_t i = 0; i < chat.tools.size(); ++i) {
    const Json& function = chat.tools[i]["function"];
    const Json name = function.value("name", Json());
    if (!name.is_string()) throw InvalidRequest(fmt::format("`tools[{}].function.name` is missing", i), "tools");
    const std::string key = fmt::format("tool{}", i);
    definitions[key] = parameters_of(function);
    move_references(definitions[key], "#/$defs/" + key);
    calls.push_back({{"type", "object"},
                     {"properties", {{"name", {{"const", name}}}, {"parameters", {{"$ref", "#/$defs/" + key}}}}},
                     {"required", {"name", "parameters"}}});
  }
  Json schema = {{"type", "array"}, {"items", {{"anyOf", calls}}}, {"minItems", 1}, {"$defs", definitions}};
  if (!chat.parallel_tool_calls) schema["maxItems"] = 1;
  return compiled({Constraint::Kind::kSchema, "tools", schema});
}

}  // namespace tutti

#include "text/chat_template.h"

#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "text/jinja_ast.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_lexer.h"
#include "text/jinja_ops.h"
#include "text/jinja_parser.h"
#include "text/jinja_runtime.h"

namespace tutti {
namespace {

jinja::Value to_value(const Json& json, jinja::Runtime& rt) {
  rt.step();
  switch (json.type()) {
    case Json::value_t::boolean: return json.get<bool>();
    case Json::value_t::number_integer: return json.get<int64_t>();
    case Json::value_t::number_unsigned: return static_cast<jinja::Int>(json.get<uint64_t>());
    case Json::value_t::number_float: return json.get<double>();
    case Json::value_t::string: return jinja::make_text(json.get_ref<const std::string&>(), rt);
    case Json::value_t::array: {
      std::vector<jinja::Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(to_value(item, rt));
      return jinja::make_list(std::move(items), rt);
    }
    case Json::value_t::object: {
      jinja::Dict dict;
      for (const auto& [key, value] : json.items()) dict.set(jinja::Value(key), to_value(value, rt), rt);
      return jinja::make_dict(std::move(dict));
    }
    default: return jinja::None{};
  }
}

// "chat_template" as a string, or as a list of {"name", "template"} of which "default" counts.
std::string template_of(const Json& config, const std::string& path) {
  const auto it = config.is_object() ? config.find("chat_template") : config.end();
  if (it == config.end() || it->is_null()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (it->is_array()) {
    for (const Json& entry : *it) {
      if (entry.value("name", "") == "default" && entry.contains("template") && entry["template"].is_string()) {
        return entry["template"].get<std::string>();
      }
    }
  }
  throw ConfigError(path + ": \"chat_template\" must be a string, or a list of {\"name\", \"template\"} with one "
                    "named \"default\"; pass --chat-template to choose another");
}

}  // namespace

struct ChatTemplate::Impl {
  jinja::Template parsed;
};

ChatTemplate::ChatTemplate(const std::string& source)
    : impl_(std::make_unique<Impl>(Impl{jinja::compile(source)})) {}

ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::source_from_folder(const std::string& folder) {
  const std::string jinja = folder + "/chat_template.jinja";
  if (file_exists(jinja)) return read_file(jinja);
  for (const char* name : {"/chat_template.json", "/tokenizer_config.json"}) {
    const std::string path = folder + name;
    if (!file_exists(path)) continue;
    std::string source = template_of(read_json_file(path), path);
    if (!source.empty()) return source;
  }
  return "";
}

std::string ChatTemplate::chatml() {
  return "{%- for message in messages -%}\n"
         "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}\n"
         "{%- endfor -%}\n"
         "{%- if add_generation_prompt -%}\n"
         "{{- '<|im_start|>assistant\\n' -}}\n"
         "{%- endif -%}\n";
}

std::string ChatTemplate::render(const Json& context) const {
  jinja::Runtime rt;
  jinja::Dict variables;
  const jinja::Template& parsed = impl_->parsed;
  size_t at = 0;
  try {
    if (!context.is_object()) jinja::fail("the variables of a chat template must be an object");
    for (const auto& [name, value] : context.items()) variables.set(jinja::Value(name), to_value(value, rt), rt);
    jinja::Interpreter interpreter(parsed, variables, rt);
    try {
      return interpreter.run();
    } catch (const jinja::TemplateError&) {
      at = interpreter.at();
      throw;
    }
  } catch (const jinja::RaisedByTemplate& e) {
    throw InvalidRequest(e.what(), "messages");
  } catch (const jinja::TemplateError& e) {
    throw InvalidRequest("chat template, line " + std::to_string(jinja::line_column(parsed.source, at).line) + ": " +
                             e.what(),
                         "messages");
  }
}

}  // namespace tutti

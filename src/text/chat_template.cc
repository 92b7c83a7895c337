#include "text/chat_template.h"

#include "base/error.h"
#include "base/file.h"
#include "text/jinja_ast.h"
#include "text/jinja_parser.h"
#include "text/jinja_render.h"
#include "text/jinja_runtime.h"

namespace tutti {
namespace {

// "chat_template" as a string, or as a list of {"name", "template"} of which "default" counts.
std::string template_of(const Json& config, const std::string& path) {
  const auto it = config.is_object() ? config.find("chat_template") : config.end();
  if (it == config.end() || it->is_null()) return "";
  if (it->is_string()) return it->get<std::string>();
  if (it->is_array()) {
    for (const Json& entry : *it) {
      if (entry.value("name", "") == "default" && entry.contains("template") &&
          entry["template"].is_string()) {
        return entry["template"].get<std::string>();
      }
    }
  }
  throw ConfigError(
      path +
      ": \"chat_template\" must be a string, or a list of {\"name\", \"template\"} with one "
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
  return jinja::render(impl_->parsed, context, rt);
}

}  // namespace tutti

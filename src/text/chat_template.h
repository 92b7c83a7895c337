// A model's chat template: messages to prompt text, by a Jinja renderer that gives the same bytes
// as Python's jinja2 (as transformers sets it up: trim_blocks, lstrip_blocks, tojson,
// raise_exception, strftime_now, loop controls,
// {% generation %}). Compiled once; render() is const and thread-safe.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"

namespace tutti {

class ChatTemplate {
 public:
  // Throws ConfigError with line and column when the template does not compile.
  explicit ChatTemplate(const std::string& source);
  ~ChatTemplate();

  // chat_template.jinja, or "chat_template" of chat_template.json or tokenizer_config.json in
  // `folder` (of several named templates the one named "default"); "" when there is none.
  static std::string source_from_folder(const std::string& folder);
  // A plain ChatML template, for models that bring none.
  static std::string chatml();

  // `context` holds messages, tools, documents, add_generation_prompt, bos_token, eos_token and the
  // request's chat_template_kwargs. Throws InvalidRequest when the template raises an exception or
  // passes the limits on loop steps, recursion or output size.
  std::string render(const Json& context) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti

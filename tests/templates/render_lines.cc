// Renders chat templates for compare.py: reads {"template", "context"} as JSON, one a line, and answers each with
// {"text"} or {"error"}.
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_template.h"

namespace {

tutti::Json answer(const tutti::Json& request, std::map<std::string, std::unique_ptr<tutti::ChatTemplate>>& compiled) {
  const auto source = request.at("template").get<std::string>();
  try {
    auto& chat_template = compiled[source];
    if (!chat_template) chat_template = std::make_unique<tutti::ChatTemplate>(source);
    return {{"text", chat_template->render(request.at("context"))}};
  } catch (const tutti::Error& e) {
    return {{"error", e.what()}};
  }
}

}  // namespace

int main() {
  std::map<std::string, std::unique_ptr<tutti::ChatTemplate>> compiled;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << tutti::dump_json(answer(tutti::parse_json(line, "standard input", 256), compiled)) << "\n" << std::flush;
  }
}

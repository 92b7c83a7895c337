// Renders chat templates for compare.py: reads {"template", "context"} as JSON, one a line, and
// answers each with
// {"text"} or {"error"}.
#include <iostream>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_template.h"

namespace {

// The last template compiled: requests for one template come in a row.
struct Compiled {
  std::string source;
  std::unique_ptr<tutti::ChatTemplate> chat_template;
};

tutti::Json answer(const tutti::Json& request, Compiled& last) {
  const auto source = request.at("template").get<std::string>();
  try {
    if (!last.chat_template || last.source != source) {
      last.chat_template = nullptr;
      last = {source, std::make_unique<tutti::ChatTemplate>(source)};
    }
    return {{"text", last.chat_template->render(request.at("context"))}};
  } catch (const tutti::Error& e) {
    return {{"error", e.what()}};
  }
}

}  // namespace

int main() {
  Compiled last;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << tutti::dump_json(answer(tutti::parse_json(line, "standard input", 256), last))
              << "\n"
              << std::flush;
  }
}

// Any text as a chat template, over a fixed conversation: it must render or be refused, within the
// limits.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "text/jinja_parser.h"
#include "text/jinja_render.h"

namespace {

const tutti::Json& context() {
  static const tutti::Json json = tutti::parse_json(
      R"({"messages": [{"role": "system", "content": "Be nice."},
                       {"role": "user", "content": "Größe 🙂 <b>"},
                       {"role": "assistant", "content": null, "tool_calls": [
                          {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": [1, 2.5]}}}]},
                       {"role": "tool", "content": "42", "tool_call_id": "c1"}],
          "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
          "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 7, "x": -1.5})",
      "fuzz context");
  return json;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kSteps = 200'000;  // each run stays short
  try {
    const auto parsed =
        tutti::jinja::compile(std::string(reinterpret_cast<const char*>(data), size));
    tutti::jinja::Runtime rt(kSteps);
    tutti::jinja::render(parsed, context(), rt);
  } catch (const tutti::ConfigError&) {     // does not compile
  } catch (const tutti::InvalidRequest&) {  // fails while it runs
  }
  return 0;
}

// Finds the calls of tools in a model's text, as it comes: what is no call goes on as content at once, a call
// is handed out when it is complete. One per sequence; used on its loop.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct ToolCall {
  std::string name;
  std::string arguments;  // JSON text
};

class ToolParser {
 public:
  struct Piece {
    std::string content;
    std::vector<ToolCall> calls;
    std::string arguments;  // more of those of the last call
  };

  virtual ~ToolParser() = default;
  virtual Piece push(std::string_view text) = 0;
  // The rest at the end; a call that was cut off, or is no valid JSON, is content.
  virtual Piece finish() = 0;

  // By the name of --tool-call-parser; nullptr when there is none of that name.
  //   hermes       <tool_call>{"name": ..., "arguments": {...}}</tool_call>, also of Qwen
  //   llama3_json  the whole answer is {"name": ..., "parameters": {...}}, several separated by ";"
  static std::unique_ptr<ToolParser> make(std::string_view name);
  // Of answers that a grammar forces to be calls: the arguments of `name` alone, which go on as they come, or a list of
  // {"name": ..., "parameters": {...}}.
  static std::unique_ptr<ToolParser> arguments_of(std::string name);
  static std::unique_ptr<ToolParser> list_of_calls();
  static std::vector<std::string> names() { return {"hermes", "llama3_json"}; }
};

}  // namespace tutti

// The requests of the OpenAI API as this server understands them, with every default filled in. Parsing needs
// neither the engine nor the tokenizer: it is a pure function of the body, the server's settings and the
// model's facts, and is safe on any bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "protocol/sampling_params.h"
#include "server/server_config.h"

namespace tutti {

using PromptInput = std::variant<std::string, std::vector<int32_t>>;

// What the chat template needs.
struct ChatPrompt {
  Json messages = Json::array();
  Json tools;      // null = none
  Json documents;  // null = none
  Json template_kwargs = Json::object();
  std::optional<std::string> chat_template;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  bool parse_tool_calls = false;  // tool_choice "auto": the answer may call tools
  bool parallel_tool_calls = true;
  bool tool_required = false;  // tool_choice "required"
  std::string named_tool;      // tool_choice of one function
  bool forces_tool() const { return tool_required || !named_tool.empty(); }
  std::string last_content;  // of the last message, for `echo`
};

struct ApiRequest {
  std::string model;                 // as asked for; "" = the served one
  std::vector<PromptInput> prompts;  // of a completion
  std::optional<ChatPrompt> chat;    // of a chat completion
  int n = 1;
  bool stream = false;
  bool include_usage = false;  // stream_options
  bool continuous_usage = false;

  SamplingParams sampling;  // max_tokens, bad_words and min_tokens' ceiling are set once the prompt is known
  std::optional<int64_t> max_tokens;  // nothing = what is left of the context
  std::vector<std::string> stop;
  std::vector<std::string> bad_words;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;
  bool add_special_tokens = true;
  std::optional<int64_t> truncate_prompt_tokens;  // keep the last ones; -1 = what fits

  std::optional<int> logprobs;  // alternatives to show per token
  std::optional<int> prompt_logprobs;
  bool echo = false;
  bool echo_only = false;  // max_tokens 0 with echo: nothing is generated
  bool return_token_ids = false;
  bool tokens_as_ids = false;  // "token_id:17" in logprobs

  int32_t priority = 0;
  std::string cache_salt;
  std::string request_id;  // "" = to be made up
};

// Throw InvalidRequest naming the field. `body` is the parsed JSON of the request.
ApiRequest parse_completion_request(const Json& body, const ServerConfig& config, const ModelInfo& model);
ApiRequest parse_chat_request(const Json& body, const ServerConfig& config, const ModelInfo& model);

// The body of a request as JSON: an object, not too deep, no object with very many keys. Throws
// InvalidRequest.
Json parse_request_body(std::string_view body);

// A message list as templates expect it: content parts joined to text, tool call arguments as objects.
ChatPrompt parse_chat_prompt(const Json& body, const ServerConfig& config);

// An id that a client may choose: up to 128 visible ASCII characters.
bool valid_request_id(std::string_view id);

}  // namespace tutti

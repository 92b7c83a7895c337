// The answer as server-sent events.
#include <utility>

#include "server/generation.h"

namespace tutti {

// New tokens of a choice have come. While the client is slow nothing is written: what is pending is merged
// and goes out as one event when there is room again (flush_all).
void Generation::stream(Choice& choice) {
  const bool due =
      !choice.begun || choice.done || choice.tokens_since_event >= context_.config.stream_interval;
  if (!due || (!exchange_->writable() && num_open_ > 0)) return;
  exchange_->write(take_delta(choice));
  if (num_open_ == 0) end_stream();
}

void Generation::flush_all() {
  for (Choice& choice : choices_) {
    if (released_) return;
    if (choice.num_tokens > 0 || choice.done) stream(choice);
  }
}

// Everything pending of a choice, as events; "" when there is nothing to show yet.
std::string Generation::take_delta(Choice& choice) {
  std::string out;
  if (choice.closed) return out;
  if (!std::exchange(choice.begun, true)) begin(choice, &out);
  const bool tokens_matter = request_.logprobs || request_.return_token_ids || request_.continuous_usage;
  const bool something = !choice.text.empty() || !choice.tool_calls.empty() || choice.done ||
                         (tokens_matter && !choice.token_ids.empty());
  if (!something) return out;
  std::string delta;
  if (request_.chat) {
    delta = chat_delta(choice);
  } else {
    append_json_string(&delta, choice.text);
  }
  Json logprobs;
  if (request_.logprobs && !choice.token_ids.empty()) {
    logprobs = choice_logprobs(choice, choice.token_ids, choice.logprobs);
  }
  std::string ids;
  if (request_.return_token_ids) ids = take_prompt_ids(choice) + ",\"token_ids\":" + dump_json(choice.token_ids);
  append_event(choice, delta, logprobs, ids, choice.done, &out);
  choice.text.clear();
  choice.tool_calls.clear();
  choice.token_ids.clear();
  choice.logprobs.clear();
  choice.tokens_since_event = 0;
  choice.closed = choice.done;
  return out;
}

// Fields for the first event of a choice: the ids of its prompt, if they are wanted.
std::string Generation::take_prompt_ids(Choice& choice) const {
  if (!request_.return_token_ids || std::exchange(choice.prompt_ids_sent, true)) return "";
  return ",\"prompt_token_ids\":" + dump_json(choice.prompt->token_ids);
}

// {"content": "..."}, with the calls of tools that are complete.
std::string Generation::chat_delta(Choice& choice) const {
  std::string out = "{";
  if (choice.tool_calls.empty() || !choice.text.empty()) {
    out += "\"content\":";
    append_json_string(&out, choice.text);
  }
  if (!choice.tool_calls.empty()) {
    if (out.size() > 1) out += ",";
    out += "\"tool_calls\":" + dump_json(choice.tool_calls);
  }
  return out + "}";
}

// What comes before the first token: the role in a chat, the prompt in a completion with echo.
void Generation::begin(Choice& choice, std::string* out) {
  Json logprobs;
  if (!request_.chat && request_.echo && request_.logprobs) {
    logprobs = choice_logprobs(choice, choice.prompt->token_ids, aligned_prompt_logprobs(choice));
  }
  std::string delta;
  append_json_string(&delta, request_.echo ? choice.prompt->text : "");
  if (request_.chat) {
    std::string role = "{\"role\":";
    append_json_string(&role, context_.config.response_role);
    *out += event_head_ + "{\"index\":" + std::to_string(choice.index) + ",\"delta\":" + role +
            ",\"content\":" + delta + "},\"logprobs\":null,\"finish_reason\":null}]" + take_prompt_ids(choice) + "}\n\n";
  } else if (request_.echo) {
    append_event(choice, delta, logprobs, take_prompt_ids(choice), false, out);
  }
}

void Generation::append_event(const Choice& choice, const std::string& delta, const Json& logprobs,
                              const std::string& ids, bool last, std::string* out) const {
  *out += event_head_;
  *out += "{\"index\":" + std::to_string(choice.index);
  if (request_.chat) {
    *out += ",\"delta\":" + delta;
  } else {
    *out += ",\"text\":" + delta;
  }
  *out += ",\"logprobs\":";
  *out += logprobs.is_null() ? "null" : dump_json(logprobs);
  *out += ",\"finish_reason\":";
  *out += last ? "\"" + std::string(choice.finish_reason) + "\"" : "null";
  if (last) *out += ",\"stop_reason\":" + dump_json(choice.stop_reason);
  *out += ids + "}]";
  if (request_.continuous_usage) *out += ",\"usage\":" + dump_json(usage_json(usage(choice), false));
  *out += "}\n\n";
}

void Generation::end_stream() {
  std::string out;
  for (Choice& choice : choices_) out += take_delta(choice);
  if (request_.include_usage) {
    const Json json = usage_json(usage(), context_.config.enable_prompt_tokens_details);
    out += event_head_ + "],\"usage\":" + dump_json(json) + "}\n\n";
  }
  out += "data: [DONE]\n\n";
  exchange_->write(out);
  exchange_->end();
  release();
}

}  // namespace tutti

// The answer as one JSON object.
#include "server/generation.h"

namespace tutti {

void Generation::answer() {
  Json body = head(request_.chat ? "chat.completion" : "text_completion");
  Json choices = Json::array();
  for (Choice& choice : choices_)
    choices.push_back(request_.chat ? chat_choice(choice) : completion_choice(choice));
  body["choices"] = std::move(choices);
  body["usage"] = usage_json(usage(), context_.config.enable_prompt_tokens_details);
  if (request_.chat && request_.prompt_logprobs) {
    body["prompt_logprobs"] = logprob_writer_.prompt(aligned_prompt_logprobs(choices_.front()));
  }
  if (request_.chat && request_.return_token_ids) body["prompt_token_ids"] = prompts_.front().token_ids;
  exchange_->respond(json_response(body));
  release();
}

Json Generation::head(const char* object) const {
  return {{"id", id_},       {"object", object},        {"created", created_},
          {"model", model_}, {"service_tier", nullptr}, {"system_fingerprint", nullptr}};
}

Json Generation::choice_logprobs(Choice& choice, const std::vector<int32_t>& ids,
                                 const std::vector<TokenLogprobs>& tokens) const {
  const int num_top = request_.logprobs.value_or(0);
  if (request_.chat) return logprob_writer_.chat(tokens, num_top);
  return logprob_writer_.completion(ids, tokens, num_top, &choice.text_offset);
}

Json Generation::completion_choice(Choice& choice) const {
  std::vector<int32_t> ids = choice.token_ids;
  std::vector<TokenLogprobs> tokens = choice.logprobs;
  Json json = {{"index", choice.index}, {"text", (request_.echo ? choice.prompt->text : "") + choice.text}};
  json["logprobs"] = nullptr;
  if (request_.logprobs) {
    if (request_.echo) {
      const std::vector<TokenLogprobs> prompt = aligned_prompt_logprobs(choice);
      ids.insert(ids.begin(), choice.prompt->token_ids.begin(), choice.prompt->token_ids.end());
      tokens.insert(tokens.begin(), prompt.begin(), prompt.end());
    }
    json["logprobs"] = choice_logprobs(choice, ids, tokens);
  }
  json["finish_reason"] = choice.finish_reason;
  json["stop_reason"] = choice.stop_reason;
  if (request_.prompt_logprobs)
    json["prompt_logprobs"] = logprob_writer_.prompt(aligned_prompt_logprobs(choice));
  if (request_.return_token_ids) {
    json["token_ids"] = choice.token_ids;
    json["prompt_token_ids"] = choice.prompt->token_ids;
  }
  return json;
}

Json Generation::chat_choice(Choice& choice) const {
  const std::string content = (request_.echo ? choice.prompt->text : "") + choice.text;
  Json message = {{"role", context_.config.response_role}, {"content", content}, {"refusal", nullptr}};
  message["tool_calls"] = Json::array();
  for (Json call : choice.tool_calls) {
    call.erase("index");
    message["tool_calls"].push_back(std::move(call));
  }
  if (content.empty() && choice.num_tool_calls > 0) message["content"] = nullptr;
  Json json = {{"index", choice.index}, {"message", std::move(message)}};
  json["logprobs"] = nullptr;
  if (request_.logprobs) json["logprobs"] = choice_logprobs(choice, choice.token_ids, choice.logprobs);
  json["finish_reason"] = choice.finish_reason;
  json["stop_reason"] = choice.stop_reason;
  if (request_.return_token_ids) json["token_ids"] = choice.token_ids;
  return json;
}

}  // namespace tutti

// The JSON of answers. Streamed events are put together as text, since one is made for nearly every token;
// what is made once a request goes through Json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "protocol/step.h"
#include "server/http.h"
#include "text/tokenizer.h"

namespace tutti {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

// `text` as a JSON string with its quotes. `text` is valid UTF-8.
void append_json_string(std::string* out, std::string_view text);

Json usage_json(const Usage& usage, bool with_details);

// {"error": {"message", "type", "param", "code"}}; `param` "" is null.
Json error_json(int status, const std::string& message, const std::string& param = "");
HttpResponse error_response(int status, const std::string& message, const std::string& param = "");
HttpResponse json_response(const Json& body);
// Inside a catch block: what the client is told about the exception. What is not its fault is logged.
HttpResponse current_exception_response(const HttpRequest& request);

// Tokens and their log probabilities in the forms of the two APIs.
class LogprobWriter {
 public:
  // `as_ids`: "token_id:17" in place of the token's text.
  LogprobWriter(const Tokenizer& tokenizer, bool as_ids) : tokenizer_(tokenizer), as_ids_(as_ids) {}

  std::string text(int32_t token_id) const;
  // {"content": [{"token", "logprob", "bytes", "top_logprobs"}]}, `num_top` alternatives a token, -1 = all
  // given.
  Json chat(const std::vector<TokenLogprobs>& tokens, int num_top) const;
  // {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. An empty entry is a token without any (the
  // first of a prompt), named in `ids`. `offset` counts characters and goes on from one call to the next.
  Json completion(const std::vector<int32_t>& ids, const std::vector<TokenLogprobs>& tokens, int num_top,
                  int64_t* offset) const;
  // [null, {"17": {"logprob", "rank", "decoded_token"}}, ...]
  Json prompt(const std::vector<TokenLogprobs>& tokens) const;

 private:
  Json chat_entry(const TokenLogprob& token) const;

  const Tokenizer& tokenizer_;
  bool as_ids_;
};

}  // namespace tutti

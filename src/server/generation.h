// One API request on its way through the engine: submits its prompts times n sequences, turns their tokens
// into text, and answers, at once at the end or event by event. Lives on the exchange's loop, kept alive by
// the engine's callbacks and the exchange's handlers until the answer is complete.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/openai_response.h"
#include "server/prompt_builder.h"
#include "server/tool_parser.h"
#include "text/detokenizer.h"

namespace tutti {

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Times {
    Clock::time_point arrival;                  // of the request, for the metrics
    std::optional<Clock::time_point> deadline;  // it fails with 504 after it
  };

  Generation(const ApiContext& context, std::shared_ptr<HttpExchange> exchange, ApiRequest request,
             std::vector<PreparedPrompt> prompts, std::string id, Times times);

  // `max_tokens` is one a prompt. Answers with an error when the engine does not take the request.
  void start(const std::vector<int32_t>& max_tokens);

 private:
  // One sequence: prompts x n of them.
  struct Choice {
    int index = 0;
    const PreparedPrompt* prompt = nullptr;
    RequestId request_id = 0;
    std::unique_ptr<Detokenizer> detokenizer;
    std::unique_ptr<ToolParser> tool_parser;  // null: all text is content
    int num_tool_calls = 0;
    int64_t num_tokens = 0;
    int64_t num_cached = 0;
    // Not sent yet: everything since the last event of a stream; the whole answer otherwise.
    std::string text;
    std::vector<Json> tool_calls;
    std::vector<int32_t> token_ids;
    std::vector<TokenLogprobs> logprobs;
    std::vector<TokenLogprobs> prompt_logprobs;
    int64_t tokens_since_event = 0;
    int64_t text_offset = 0;  // characters of the tokens in logprobs sent so far
    bool begun = false;       // its first event has been sent
    bool prompt_ids_sent = false;
    bool done = false;        // no more tokens
    bool closed = false;      // its last event has been sent
    const char* finish_reason = nullptr;
    Json stop_reason;
  };

  bool submit(Choice& choice, int32_t max_tokens);
  void watch_client();
  void receive(Choice& choice, TokenOutput output);
  void on_output(Choice& choice, TokenOutput output);
  void take_tokens(Choice& choice, TokenOutput& output);
  void add_text(Choice& choice, const std::string& text, bool last);
  void finish(Choice& choice, const char* reason, Json stop_reason);
  void end_sequences(FinishReason counted_as);
  void fail(int status, const std::string& message, const std::string& param = "");
  void release();
  void log_end() const;

  // generation_stream.cc
  void stream(Choice& choice);
  void flush_all();
  void begin(Choice& choice, std::string* out);
  std::string take_prompt_ids(Choice& choice) const;
  std::string chat_delta(Choice& choice) const;
  void append_event(const Choice& choice, const std::string& delta, const Json& logprobs,
                    const std::string& ids, bool last, std::string* out) const;
  std::string take_delta(Choice& choice);
  void end_stream();

  // generation_body.cc
  void answer();
  Json completion_choice(Choice& choice) const;
  Json chat_choice(Choice& choice) const;
  Json choice_logprobs(Choice& choice, const std::vector<int32_t>& ids,
                       const std::vector<TokenLogprobs>& tokens) const;
  std::vector<TokenLogprobs> aligned_prompt_logprobs(const Choice& choice) const;
  Json head(const char* object) const;

  bool is_shown(const TokenOutput& output, size_t i) const;
  Usage usage() const;
  Usage usage(const Choice& choice) const;

  const ApiContext& context_;
  const std::shared_ptr<HttpExchange> exchange_;
  const ApiRequest request_;
  const std::vector<PreparedPrompt> prompts_;
  const std::string id_;
  const std::string model_;
  const int64_t created_;
  const Times times_;
  const LogprobWriter logprob_writer_;
  std::string event_head_;  // what every event begins with
  std::vector<Choice> choices_;
  size_t num_open_ = 0;  // choices that are not done
  bool released_ = false;
};

}  // namespace tutti

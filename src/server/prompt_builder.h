// From a parsed request to the token ids that the engine gets: chat template, tokenizer, truncation, and the
// checks that need the number of tokens. Const and thread-safe: large prompts are prepared beside the event
// loops.
#pragma once

#include <string>
#include <vector>

#include "server/api_context.h"
#include "server/openai_types.h"

namespace tutti {

struct PreparedPrompt {
  std::vector<int32_t> token_ids;
  std::string text;  // what `echo` gives back
};

class PromptBuilder {
 public:
  explicit PromptBuilder(const ApiContext& context);

  // One a prompt of the request, one for a chat. Fills in what depends on them: sampling.max_tokens per
  // prompt is max_tokens(). Throws InvalidRequest.
  std::vector<PreparedPrompt> build(ApiRequest* request) const;
  // How many tokens may be generated after a prompt.
  int32_t max_tokens(const ApiRequest& request, const PreparedPrompt& prompt) const;
  // The text that the chat template makes of the messages.
  std::string render(const ChatPrompt& chat) const;
  // Ids of a prompt of the request, truncated, not yet checked against the context.
  std::vector<int32_t> tokenize(const std::string& text, const ApiRequest& request) const;

 private:
  PreparedPrompt build_one(const PromptInput& input, const ApiRequest& request, const char* param) const;
  void check_length(const PreparedPrompt& prompt, const ApiRequest& request, const char* param) const;
  void check_size(const std::string& text, const ApiRequest& request, const char* param) const;
  void truncate(std::vector<int32_t>* ids, const ApiRequest& request) const;
  void tokenize_bad_words(ApiRequest* request) const;

  const ApiContext& context_;
  size_t max_token_bytes_ = 1;  // of the longest token
};

}  // namespace tutti

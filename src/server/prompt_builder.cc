#include "server/prompt_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tutti {
namespace {

std::string token_text(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id ? tokenizer.token(*id) : "";
}

// transformers' rule: the prompt ends where the final message's text ends, without what the template puts
// behind it.
std::string cut_after_final_message(std::string prompt, const std::string& content) {
  const auto trim = [](std::string_view text) {
    const size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return std::string_view();
    return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
  };
  const std::string_view final_text = trim(content);
  const size_t at = prompt.rfind(final_text);
  if (at == std::string::npos) {
    throw InvalidRequest(
        "`continue_final_message` is set, but the chat template changes the final message's text, so "
        "there is no place to continue from",
        "continue_final_message");
  }
  // A template that keeps the message's own white space is followed in that.
  const bool keeps_spaces = prompt.compare(at, content.size() - (final_text.data() - content.data()), content,
                                           final_text.data() - content.data()) == 0;
  prompt.resize(keeps_spaces ? at + content.size() - (final_text.data() - content.data())
                             : at + final_text.size());
  return prompt;
}

}  // namespace

PromptBuilder::PromptBuilder(const ApiContext& context) : context_(context) {
  for (int64_t id = 0; id < context.tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    max_token_bytes_ = std::max({max_token_bytes_, context.tokenizer.token_bytes(token).size(),
                                 context.tokenizer.token(token).size()});
  }
}

std::string PromptBuilder::render(const ChatPrompt& chat) const {
  Json values = chat.template_kwargs;
  values["messages"] = chat.messages;
  if (!chat.tools.is_null()) values["tools"] = chat.tools;
  if (!chat.documents.is_null()) values["documents"] = chat.documents;
  values["add_generation_prompt"] = chat.add_generation_prompt;
  const Tokenizer& tokenizer = context_.tokenizer;
  values["bos_token"] = token_text(tokenizer, tokenizer.bos_id());
  values["eos_token"] = token_text(tokenizer, tokenizer.eos_id());
  std::string text;
  if (chat.chat_template) {
    try {
      text = ChatTemplate(*chat.chat_template).render(values);
    } catch (const ConfigError& e) {
      throw InvalidRequest(std::string("`chat_template`: ") + e.what(), "chat_template");
    }
  } else {
    text = context_.chat_template.render(values);
  }
  return chat.continue_final_message ? cut_after_final_message(std::move(text), chat.last_content) : text;
}

// Even if every token were the longest there is, the text would not fit: no need to tokenise megabytes to say
// so.
void PromptBuilder::check_size(const std::string& text, const ApiRequest& request, const char* param) const {
  if (request.truncate_prompt_tokens) return;
  const size_t most = static_cast<size_t>(context_.model.max_model_len) * max_token_bytes_;
  if (text.size() <= most) return;
  throw InvalidRequest(
      fmt::format("the prompt has {} bytes, which is more than {} tokens, this model's maximum "
                  "context length: shorten the prompt",
                  text.size(), context_.model.max_model_len),
      param);
}

void PromptBuilder::truncate(std::vector<int32_t>* ids, const ApiRequest& request) const {
  if (!request.truncate_prompt_tokens) return;
  const int64_t room =
      context_.model.max_model_len - (request.max_tokens ? std::max<int64_t>(1, *request.max_tokens) : 1);
  const int64_t keep =
      *request.truncate_prompt_tokens < 0 ? std::max<int64_t>(1, room) : *request.truncate_prompt_tokens;
  const auto size = static_cast<int64_t>(ids->size());
  if (size > keep) ids->erase(ids->begin(), ids->begin() + (size - keep));
}

std::vector<int32_t> PromptBuilder::tokenize(const std::string& text, const ApiRequest& request) const {
  EncodeOptions options;
  options.add_special_tokens = request.add_special_tokens;
  std::vector<int32_t> ids = context_.tokenizer.encode(text, options);
  truncate(&ids, request);
  return ids;
}

void PromptBuilder::check_length(const PreparedPrompt& prompt, const ApiRequest& request,
                                 const char* param) const {
  const int64_t limit = context_.model.max_model_len;
  const auto size = static_cast<int64_t>(prompt.token_ids.size());
  if (size == 0) throw InvalidRequest("the prompt has no tokens", param);
  if (size >= limit) {
    throw InvalidRequest(
        fmt::format("This model's maximum context length is {} tokens. However, your request has {} "
                    "input tokens: shorten the prompt",
                    limit, size),
        param);
  }
  if (request.max_tokens && size + *request.max_tokens > limit) {
    const char* name = request.chat ? "max_completion_tokens" : "max_tokens";
    throw InvalidRequest(
        fmt::format("`{}` is too large: {}. This model's maximum context length is {} tokens and your "
                    "request has {} input tokens, which leaves {}",
                    name, *request.max_tokens, limit, size, limit - size),
        name);
  }
}

PreparedPrompt PromptBuilder::build_one(const PromptInput& input, const ApiRequest& request,
                                        const char* param) const {
  PreparedPrompt prompt;
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&input)) {
    prompt.token_ids = *ids;
    truncate(&prompt.token_ids, request);
    if (request.echo) prompt.text = context_.tokenizer.decode(prompt.token_ids, request.skip_special_tokens);
  } else {
    const std::string& text = std::get<std::string>(input);
    check_size(text, request, param);
    prompt.token_ids = tokenize(text, request);
    prompt.text = request.truncate_prompt_tokens ? context_.tokenizer.decode(prompt.token_ids) : text;
  }
  check_length(prompt, request, param);
  return prompt;
}

std::vector<PreparedPrompt> PromptBuilder::build(ApiRequest* request) const {
  tokenize_bad_words(request);
  std::vector<PreparedPrompt> prompts;
  if (request->chat) {
    prompts.push_back(build_one(render(*request->chat), *request, "messages"));
    prompts.back().text = request->chat->last_content;
  } else {
    for (const PromptInput& input : request->prompts) prompts.push_back(build_one(input, *request, "prompt"));
  }
  return prompts;
}

int32_t PromptBuilder::max_tokens(const ApiRequest& request, const PreparedPrompt& prompt) const {
  int64_t most = context_.model.max_model_len - static_cast<int64_t>(prompt.token_ids.size());
  if (request.max_tokens) most = std::min(most, *request.max_tokens);
  if (context_.model.defaults.max_tokens) most = std::min<int64_t>(most, *context_.model.defaults.max_tokens);
  return static_cast<int32_t>(most);
}

// A word may begin a text or follow a space: two spellings in most vocabularies.
void PromptBuilder::tokenize_bad_words(ApiRequest* request) const {
  const EncodeOptions plain{.add_special_tokens = false, .parse_special_tokens = false};
  auto& out = request->sampling.bad_words;
  for (const std::string& word : request->bad_words) {
    const size_t begin = word.find_first_not_of(' ');
    const std::string bare = begin == std::string::npos ? word : word.substr(begin);
    const std::vector<int32_t> first = context_.tokenizer.encode(bare, plain);
    const std::vector<int32_t> later = context_.tokenizer.encode(" " + bare, plain);
    if (!first.empty()) out.push_back(first);
    const bool other_spelling =
        !later.empty() && !first.empty() && later[0] != first[0] && later.size() == first.size();
    if (other_spelling) out.push_back(later);
  }
}

}  // namespace tutti

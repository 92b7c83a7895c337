#include "server/openai_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "server/field_reader.h"
#include "server/structured_outputs.h"

namespace tutti {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr double kMaxDouble = std::numeric_limits<double>::max();
constexpr double kTiny = 1e-6;
// As with vLLM. Far below it logits over temperature are no numbers any more, and greedy has a spelling of its own, 0.
constexpr double kLeastTemperature = 0.01;
constexpr int kMaxChoices = 128;
constexpr size_t kMaxSequences = 4096;
// Every sequence of a request has its stop strings and bad words, and every token is compared with them.
constexpr size_t kMaxStrings = 1024;
constexpr size_t kMaxStringBytes = 64 * 1024;

// Fields that would change the answer and that this server does not have. Better no answer than another one.
void refuse_unsupported(const FieldReader& fields) {
  for (const char* name :
       {"suffix", "prompt_embeds", "structural_tag", "logits_processors", "kv_transfer_params", "vllm_xargs",
        "mm_processor_kwargs", "repetition_detection", "thinking_token_budget", "functions", "function_call",
        "audio", "prediction", "web_search_options"}) {
    const Json* value = fields.find(name);
    if (value == nullptr || value->empty() || *value == "") continue;
    throw InvalidRequest(fmt::format("`{}` is not supported by this server: leave it out", name), name);
  }
  if (fields.boolean("use_beam_search").value_or(false)) {
    throw InvalidRequest("`use_beam_search` is not supported by this server: leave it out or set it to false",
                         "use_beam_search");
  }
  if (const Json* modalities = fields.array("modalities")) {
    for (const Json& m : *modalities) {
      if (m != "text") throw InvalidRequest("`modalities` may only be [\"text\"]", "modalities");
    }
  }
}

std::vector<std::pair<int32_t, float>> read_logit_bias(const FieldReader& fields, int64_t vocab_size) {
  std::vector<std::pair<int32_t, float>> out;
  const Json* bias = fields.object("logit_bias");
  if (bias == nullptr) return out;
  for (const auto& [key, value] : bias->items()) {
    const bool digits =
        !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    const int64_t id = digits ? std::stoll(key) : -1;
    if (id < 0 || id >= vocab_size) {
      throw InvalidRequest(fmt::format("`logit_bias` has the key {}, which is no token id from 0 to {}",
                                       describe_json(key), vocab_size - 1),
                           "logit_bias");
    }
    if (!value.is_number()) fields.fail("logit_bias", "an object of token ids and numbers", value);
    out.emplace_back(static_cast<int32_t>(id),
                     static_cast<float>(std::clamp(value.get<double>(), -100.0, 100.0)));
  }
  return out;
}

// In order, each once: a list of a set is never longer than the vocabulary.
std::vector<int32_t> read_token_set(const FieldReader& fields, const char* name, int64_t vocab_size) {
  std::vector<int32_t> ids = fields.token_ids(name, vocab_size);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  ids.shrink_to_fit();
  return ids;
}

SamplingParams read_sampling(const FieldReader& fields, const ModelInfo& model) {
  const GenerationDefaults& defaults = model.defaults;
  SamplingParams s;
  s.temperature = fields.number("temperature", 0.0, kMaxDouble).value_or(defaults.temperature.value_or(1.0));
  if (s.temperature > 0) s.temperature = std::max(s.temperature, kLeastTemperature);
  s.top_p = fields.number("top_p", kTiny, 1.0).value_or(defaults.top_p.value_or(1.0));
  s.top_k = static_cast<int32_t>(fields.integer("top_k", -1, kMaxInt32).value_or(defaults.top_k.value_or(0)));
  s.top_k = std::max(s.top_k, 0);
  s.min_p = fields.number("min_p", 0.0, 1.0).value_or(defaults.min_p.value_or(0.0));
  s.repetition_penalty = fields.number("repetition_penalty", kTiny, kMaxDouble)
                             .value_or(defaults.repetition_penalty.value_or(1.0));
  s.frequency_penalty = fields.number("frequency_penalty", -2.0, 2.0).value_or(0.0);
  s.presence_penalty = fields.number("presence_penalty", -2.0, 2.0).value_or(0.0);
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if (const auto seed = fields.integer("seed", kMin, kMax); seed && *seed != -1)
    s.seed = static_cast<uint64_t>(*seed);
  s.min_tokens = static_cast<int32_t>(fields.integer("min_tokens", 0, kMaxInt32).value_or(0));
  s.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  s.stop_token_ids = read_token_set(fields, "stop_token_ids", model.vocab_size);
  s.logit_bias = read_logit_bias(fields, model.vocab_size);
  s.allowed_token_ids = read_token_set(fields, "allowed_token_ids", model.vocab_size);
  if (fields.find("allowed_token_ids") != nullptr && s.allowed_token_ids.empty()) {
    throw InvalidRequest("`allowed_token_ids` must not be empty", "allowed_token_ids");
  }
  return s;
}

std::vector<std::string> read_nonempty_strings(const FieldReader& fields, const char* name) {
  std::vector<std::string> out = fields.strings(name);
  size_t bytes = 0;
  for (const std::string& s : out) {
    if (s.empty()) throw InvalidRequest(fmt::format("`{}` must not contain an empty string", name), name);
    bytes += s.size();
  }
  if (out.size() > kMaxStrings || bytes > kMaxStringBytes) {
    throw InvalidRequest(fmt::format("`{}` holds {} strings of {} bytes in all, at most {} of {} bytes are taken", name,
                                     out.size(), bytes, kMaxStrings, kMaxStringBytes),
                         name);
  }
  return out;
}

// A number of alternatives per token, -1 = the whole vocabulary; into the form the engine takes.
std::optional<int> read_logprobs(const FieldReader& fields, const char* name, const ServerConfig& config) {
  const auto count = fields.integer(name, -1, kMaxInt32);
  if (!count) return std::nullopt;
  const int64_t limit = config.max_logprobs;
  if (limit >= 0 && (*count > limit || *count < 0)) {
    throw InvalidRequest(fmt::format("`{}` is {}, but this server gives at most {} (--max-logprobs)", name,
                                     *count < 0 ? "the whole vocabulary" : std::to_string(*count), limit),
                         name);
  }
  return static_cast<int>(*count);
}

int32_t engine_logprobs(const std::optional<int>& count) {
  if (!count) return -1;
  return *count < 0 ? SamplingParams::kAllLogprobs : *count;
}

void read_stream(const FieldReader& fields, const ServerConfig& config, ApiRequest* r) {
  r->stream = fields.boolean("stream").value_or(false);
  if (const Json* options = fields.object("stream_options")) {
    if (!r->stream)
      throw InvalidRequest("`stream_options` may only be given with `stream` true", "stream_options");
    const FieldReader reader(*options, "stream_options.");
    r->include_usage = reader.boolean("include_usage").value_or(false);
    r->continuous_usage = reader.boolean("continuous_usage_stats").value_or(false);
  }
  r->include_usage = r->include_usage || config.enable_force_include_usage;
  r->continuous_usage = r->continuous_usage && r->include_usage;
}

// What chat and completions have in common.
ApiRequest read_common(const FieldReader& fields, const ServerConfig& config, const ModelInfo& model) {
  refuse_unsupported(fields);
  ApiRequest r;
  r.model = fields.string("model").value_or("");
  r.n = static_cast<int>(fields.integer("n", 1, kMaxChoices).value_or(1));
  if (const auto best_of = fields.integer("best_of", 1, kMaxInt32); best_of && *best_of != r.n) {
    throw InvalidRequest("`best_of` is not supported: leave it out or set it to `n`", "best_of");
  }
  read_stream(fields, config, &r);
  r.sampling = read_sampling(fields, model);
  r.sampling.grammar = read_structured_outputs(fields);
  r.stop = read_nonempty_strings(fields, "stop");
  r.bad_words = read_nonempty_strings(fields, "bad_words");
  r.include_stop_str_in_output = fields.boolean("include_stop_str_in_output").value_or(false);
  r.skip_special_tokens = fields.boolean("skip_special_tokens").value_or(true);
  r.truncate_prompt_tokens = fields.integer("truncate_prompt_tokens", -1, kMaxInt32);
  if (r.truncate_prompt_tokens == 0) {
    throw InvalidRequest("`truncate_prompt_tokens` must be positive, or -1 for what fits",
                         "truncate_prompt_tokens");
  }
  r.prompt_logprobs = read_logprobs(fields, "prompt_logprobs", config);
  if (r.prompt_logprobs && r.stream) {
    throw InvalidRequest("`prompt_logprobs` are not available with `stream` true", "prompt_logprobs");
  }
  r.echo = fields.boolean("echo").value_or(false);
  r.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  r.tokens_as_ids = fields.boolean("return_tokens_as_token_ids").value_or(config.return_tokens_as_token_ids);
  r.priority = static_cast<int32_t>(fields.integer("priority", -kMaxInt32, kMaxInt32).value_or(0));
  if (r.priority != 0 && !config.priority_policy) {
    throw InvalidRequest("`priority` needs a server started with --scheduling-policy priority", "priority");
  }
  r.cache_salt = fields.string("cache_salt").value_or("");
  r.request_id = fields.string("request_id").value_or("");
  if (!r.request_id.empty() && !valid_request_id(r.request_id)) {
    throw InvalidRequest("`request_id` must be at most 128 visible ASCII characters", "request_id");
  }
  return r;
}

PromptInput read_prompt(const FieldReader& fields, const Json& prompt, int64_t vocab_size) {
  if (prompt.is_string()) return prompt.get<std::string>();
  if (!prompt.is_array() || prompt.empty()) {
    fields.fail("prompt", "a string, a list of token ids, or a list of these", prompt);
  }
  return read_token_ids(prompt, "prompt", vocab_size);
}

std::vector<PromptInput> read_prompts(const FieldReader& fields, int64_t vocab_size) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) throw InvalidRequest("`prompt` is missing", "prompt");
  const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!is_list) return {read_prompt(fields, *prompt, vocab_size)};
  std::vector<PromptInput> prompts;
  for (const Json& item : *prompt) prompts.push_back(read_prompt(fields, item, vocab_size));
  return prompts;
}

void check_tokens(const ApiRequest& r, const char* name) {
  if (r.max_tokens && r.sampling.min_tokens > *r.max_tokens) {
    throw InvalidRequest(
        fmt::format("`min_tokens` ({}) is larger than `{}` ({})", r.sampling.min_tokens, name, *r.max_tokens),
        "min_tokens");
  }
}

}  // namespace

ApiRequest parse_completion_request(const Json& body, const ServerConfig& config, const ModelInfo& model) {
  const FieldReader fields(body);
  ApiRequest r = read_common(fields, config, model);
  r.prompts = read_prompts(fields, model.vocab_size);
  if (r.prompts.size() * static_cast<size_t>(r.n) > kMaxSequences) {
    throw InvalidRequest(fmt::format("{} prompts times n = {} is more than {} sequences: send fewer at once",
                                     r.prompts.size(), r.n, kMaxSequences),
                         "prompt");
  }
  r.add_special_tokens = fields.boolean("add_special_tokens").value_or(true);
  // null is "what is left of the context"; left out is the API's own default.
  r.max_tokens =
      fields.has("max_tokens") ? fields.integer("max_tokens", 0, kMaxInt32) : std::optional<int64_t>(16);
  if (r.max_tokens == 0) {
    if (!r.echo)
      throw InvalidRequest("`max_tokens` must be at least 1 (0 is for `echo` alone)", "max_tokens");
    r.echo_only = true;
    r.max_tokens = 1;
  }
  check_tokens(r, "max_tokens");
  r.logprobs = read_logprobs(fields, "logprobs", config);
  r.sampling.logprobs = engine_logprobs(r.logprobs);
  if (r.echo && r.logprobs && !r.prompt_logprobs) {
    r.sampling.prompt_logprobs = r.sampling.logprobs;
  } else {
    r.sampling.prompt_logprobs = engine_logprobs(r.prompt_logprobs);
  }
  return r;
}

ApiRequest parse_chat_request(const Json& body, const ServerConfig& config, const ModelInfo& model) {
  const FieldReader fields(body);
  ApiRequest r = read_common(fields, config, model);
  r.chat = parse_chat_prompt(body, config);
  if (r.chat->forces_tool()) {
    if (!r.sampling.grammar.empty()) {
      throw InvalidRequest("`tool_choice` says what the answer is, and so does another field: give one of them", "tool_choice");
    }
    r.sampling.grammar = grammar_of_tools(*r.chat);
  }
  r.add_special_tokens = fields.boolean("add_special_tokens").value_or(false);
  r.max_tokens = fields.integer("max_completion_tokens", 1, kMaxInt32);
  const auto old_name = fields.integer("max_tokens", 1, kMaxInt32);
  if (!r.max_tokens) r.max_tokens = old_name;
  check_tokens(r, "max_completion_tokens");
  const bool wants_logprobs = fields.boolean("logprobs").value_or(false);
  const std::optional<int> top = read_logprobs(fields, "top_logprobs", config);
  if (top && *top != 0 && !wants_logprobs) {
    throw InvalidRequest("`top_logprobs` needs `logprobs` true", "top_logprobs");
  }
  if (wants_logprobs) r.logprobs = top.value_or(0);
  r.sampling.logprobs = engine_logprobs(r.logprobs);
  r.sampling.prompt_logprobs = engine_logprobs(r.prompt_logprobs);
  return r;
}

bool valid_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace tutti

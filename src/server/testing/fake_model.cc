#include "server/testing/fake_model.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace tutti {

ByteTokenizer::ByteTokenizer() {
  for (int i = 0; i < 256; ++i) tokens_.emplace_back(1, static_cast<char>(i));
  for (const char* special : {"<bos>", "<eos>", "<|im_start|>", "<|im_end|>"}) tokens_.emplace_back(special);
  bos_id_ = kBos;
  eos_id_ = kEos;
}

std::vector<TokenId> ByteTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> ids;
  if (options.add_special_tokens) ids.push_back(kBos);
  while (!text.empty()) {
    TokenId id = static_cast<unsigned char>(text[0]);
    for (TokenId special = 256; options.parse_special_tokens && special < vocab_size(); ++special) {
      if (text.starts_with(tokens_[special])) id = special;
    }
    ids.push_back(id);
    text.remove_prefix(tokens_[id].size());
  }
  return ids;
}

std::string ByteTokenizer::decode(const std::vector<TokenId>& ids, bool skip_special_tokens) const {
  std::string out;
  for (const TokenId id : ids) {
    if (!(is_special(id) && skip_special_tokens)) out += token(id);
  }
  return out;
}

std::string ByteTokenizer::token(TokenId id) const { return std::string(token_bytes(id)); }

std::optional<TokenId> ByteTokenizer::token_id(std::string_view token) const {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i] == token) return static_cast<TokenId>(i);
  }
  return std::nullopt;
}

std::string_view ByteTokenizer::token_bytes(TokenId id) const {
  return id >= 0 && id < vocab_size() ? std::string_view(tokens_[id]) : std::string_view();
}

void RuleExecutor::submit(const SchedulerOutput& step) {
  while (paused && !failing) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (failing) throw CommError("rank 1 (node2) is lost");
  if (step_delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(step_delay_us));
  ++num_steps;
  for (const RequestId id : step.dropped) known_.erase(id);
  for (const NewRequestData& data : step.new_requests) {
    const auto prompt_end = data.token_ids.begin() + data.num_prompt_tokens;
    State state{{data.token_ids.begin(), prompt_end}, data.sampling};
    state.num_outputs = data.token_ids.end() - prompt_end;
    state.constrained.assign(prompt_end, data.token_ids.end());
    if (!data.sampling.grammar.empty()) {
      static const auto vocabulary = std::make_shared<const grammar::Vocabulary>(token_texts(ByteTokenizer()));
      state.automaton =
          std::make_shared<grammar::Automaton>(grammar::Grammar::from_bytes(data.sampling.grammar.bytes()), vocabulary);
    }
    known_.insert_or_assign(data.id, std::move(state));
  }
  ModelRunnerOutput output{.step = step.step, .timings = {StepTiming{.compute_us = 1}}};
  for (const ScheduledRequest& scheduled : step.scheduled) {
    if (scheduled.samples) output.sampled.push_back(sample(scheduled, known_.at(scheduled.id)));
  }
  answers_.push_back(std::move(output));
}

// Any of the allowed bytes; when the text grows long, one that comes nearer to its end.
int32_t RuleExecutor::choose_by_grammar(State& state) const {
  const auto mask = state.automaton->next(state.progress, state.constrained);
  constexpr size_t kLong = 60;
  std::vector<int32_t> allowed;
  for (int32_t byte = 0; byte < 256; ++byte) {
    if (mask->allows(byte)) allowed.push_back(byte);
  }
  const size_t length = state.constrained.size();
  if (allowed.empty() || (mask->may_end && length > kLong)) return ByteTokenizer::kEos;
  for (const int32_t closing : {'"', '}', ']'}) {
    if (length > kLong && mask->allows(closing)) return closing;
  }
  const uint64_t random = (state.sampling.seed.value_or(0) + 1) * 0x9E3779B97F4A7C15ull + length * 0xD1B54A32D192ED03ull;
  return allowed[(random >> 32) % allowed.size()];
}

SampledToken RuleExecutor::sample(const ScheduledRequest& scheduled, State& state) const {
  const SamplingParams& sampling = state.sampling;
  const auto logprobs_of = [](int32_t chosen, int32_t count) {
    TokenLogprobs out = {{chosen, -0.5f, 1}};
    for (int32_t i = 1; i <= count; ++i)
      out.push_back({(chosen + i - 1) % 256, -0.5f * static_cast<float>(i), i});
    return out;
  };
  const std::vector<int32_t>& prompt = state.prompt;
  SampledToken out{.id = scheduled.id};
  if (state.automaton) {
    out.token_id = choose_by_grammar(state);
    state.constrained.push_back(out.token_id);
  } else {
    out.token_id = rule_(prompt, state.num_outputs);
  }
  if (sampling.logprobs >= 0) out.logprobs = logprobs_of(out.token_id, sampling.logprobs);
  if (sampling.prompt_logprobs >= 0 && state.num_outputs == 0) {
    for (size_t i = 1; i < prompt.size(); ++i) {
      out.prompt_logprobs.push_back(logprobs_of(prompt[i], sampling.prompt_logprobs));
    }
  }
  ++state.num_outputs;
  return out;
}

ModelRunnerOutput RuleExecutor::wait(Deadline) {
  if (answers_.empty() && failing) throw CommError("rank 1 (node2) is lost");
  CHECK(!answers_.empty());
  ModelRunnerOutput answer = std::move(answers_.front());
  answers_.pop_front();
  return answer;
}

RuleExecutor::Rule repeat_text(std::string text) {
  return [text = std::move(text)](const std::vector<int32_t>&, int64_t index) -> int32_t {
    return static_cast<unsigned char>(text[static_cast<size_t>(index) % text.size()]);
  };
}

}  // namespace tutti

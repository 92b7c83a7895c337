// A tokenizer of bytes and an executor whose answers are a rule: a model for the server's tests and
// benchmarks.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/executor.h"
#include "grammar/automaton.h"
#include "text/tokenizer.h"

namespace tutti {

// Ids 0 to 255 are bytes; special tokens follow.
class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256;
  static constexpr TokenId kEos = 257;
  static constexpr TokenId kImStart = 258;
  static constexpr TokenId kImEnd = 259;

  ByteTokenizer();
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const override;
  std::string decode(const std::vector<TokenId>& ids, bool skip_special_tokens = true) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  std::string token(TokenId id) const override;
  std::optional<TokenId> token_id(std::string_view token) const override;
  bool is_special(TokenId id) const override { return id >= 256; }
  std::string_view token_bytes(TokenId id) const override;
  int leading_spaces_dropped() const override { return 0; }

 private:
  std::vector<std::string> tokens_;
};

// Answers at once. A request with a grammar gets a text of it, drawn by its seed. Output `index` of a request is `rule(prompt, index)`; logprobs are -0.5 for the chosen
// token and -1, -2, ... for the ids after it.
class RuleExecutor final : public Executor {
 public:
  using Rule = std::function<int32_t(const std::vector<int32_t>& prompt, int64_t index)>;
  explicit RuleExecutor(Rule rule, int64_t num_kv_blocks = 1 << 16) : rule_(std::move(rule)), num_kv_blocks_(num_kv_blocks) {}

  ExecutorInfo info() const override { return {.num_kv_blocks = num_kv_blocks_}; }
  void submit(const SchedulerOutput& step) override;
  ModelRunnerOutput wait(Deadline deadline) override;
  bool ready() const override { return failing || !answers_.empty(); }

  std::atomic<int64_t> step_delay_us{0};
  std::atomic<bool> failing{false};  // CommError("rank 1 (node2) is lost"), with a step or without
  std::atomic<bool> paused{false};   // steps take until this is false again
  std::atomic<int64_t> num_steps{0};

 private:
  struct State {
    std::vector<int32_t> prompt;
    SamplingParams sampling;
    int64_t num_outputs = 0;
    std::vector<int32_t> constrained;  // outputs so far, of a request with a grammar
    std::shared_ptr<grammar::Automaton> automaton = {};
    grammar::Progress progress = {};
  };
  int32_t choose_by_grammar(State& state) const;
  SampledToken sample(const ScheduledRequest& scheduled, State& state) const;

  Rule rule_;
  int64_t num_kv_blocks_;
  std::unordered_map<RequestId, State> known_;
  std::deque<ModelRunnerOutput> answers_;
};

// The rule of most tests: the prompt's last bytes do not matter, the answer is `text` again and again.
RuleExecutor::Rule repeat_text(std::string text);

}  // namespace tutti

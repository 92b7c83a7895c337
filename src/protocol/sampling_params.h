// How one request's tokens are chosen. Values are final: defaults of the model and of the API are already in.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {

// What the text must be, as grammar::Grammar::to_bytes() writes it; one copy for all sequences of an API request.
class GrammarBytes {
 public:
  GrammarBytes() = default;
  explicit GrammarBytes(std::string bytes) {
    if (!bytes.empty()) bytes_ = std::make_shared<const std::string>(std::move(bytes));
  }
  bool empty() const { return bytes_ == nullptr; }
  const std::string& bytes() const {
    static const std::string kNone;
    return bytes_ ? *bytes_ : kNone;
  }
  bool operator==(const GrammarBytes& other) const { return bytes_ == other.bytes_ || bytes() == other.bytes(); }

 private:
  std::shared_ptr<const std::string> bytes_;
};

struct SamplingParams {
  double temperature = 1.0;          // 0 = greedy
  double top_p = 1.0;
  int32_t top_k = 0;                 // 0 = all
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  std::optional<uint64_t> seed;      // the same seed gives the same tokens whatever the neighbours
  int32_t max_tokens = 16;
  int32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;         // end the generation; eos ids are added by the engine unless ignore_eos
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> allowed_token_ids;      // empty = all
  std::vector<std::vector<int32_t>> bad_words; // token sequences that may not be completed
  int32_t logprobs = -1;                       // -1 = none; n = the chosen token and the n best; kAllLogprobs = all
  int32_t prompt_logprobs = -1;                // likewise, for every prompt token
  GrammarBytes grammar;                        // empty = any text

  static constexpr int32_t kAllLogprobs = -2;

  bool greedy() const { return temperature <= 0.0; }
  // The next token depends on more than this step's logits.
  bool needs_history() const {
    return repetition_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0 || !bad_words.empty();
  }
  bool operator==(const SamplingParams&) const = default;
};

}  // namespace tutti

#include "runtime/logits_processor.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

class Row {
 public:
  Row(std::span<float> logits, Range vocab) : logits_(logits), vocab_(vocab) {}

  // The logit of a token, or nullptr when another rank has it.
  float* at(int32_t token) const {
    return token >= vocab_.begin && token < vocab_.end() ? &logits_[static_cast<size_t>(token - vocab_.begin)] : nullptr;
  }
  void forbid(int32_t token) const {
    if (float* logit = at(token)) *logit = kForbidden;
  }
  void keep(const grammar::TokenMask& mask) const {
    if (mask.bits.empty()) {
      allow_only(mask.tokens);
      return;
    }
    // Words of the mask that this part of the vocabulary meets; most are all ones or all zeros.
    for (int64_t token = vocab_.begin; token < vocab_.end();) {
      const int64_t end = std::min(vocab_.end(), (token / 64 + 1) * 64);
      const auto index = static_cast<size_t>(token / 64);
      const uint64_t word = index < mask.bits.size() ? mask.bits[index] : 0;
      float* logit = &logits_[static_cast<size_t>(token - vocab_.begin)];
      if (word == 0) {
        std::fill(logit, logit + (end - token), kForbidden);
      } else if (word != ~uint64_t{0}) {
        for (int64_t t = token; t < end; ++t, ++logit) {
          if ((word >> (t % 64) & 1) == 0) *logit = kForbidden;
        }
      }
      token = end;
    }
  }
  void allow_only(std::span<const int32_t> tokens) const {
    std::vector<std::pair<float*, float>> kept;
    for (int32_t token : tokens) {
      if (float* logit = at(token)) kept.emplace_back(logit, *logit);
    }
    std::fill(logits_.begin(), logits_.end(), kForbidden);
    for (const auto& [logit, value] : kept) *logit = value;
  }

 private:
  std::span<float> logits_;
  Range vocab_;
};

// A grammar without a way on ends the text too: what the model's vocabulary cannot write, or a text nested too deep.
bool may_end(const grammar::TokenMask& mask) { return mask.may_end || mask.none(); }

// Tokens that end a text are no part of it: they come where the text may end, and only there.
void keep_to_grammar(const Row& row, const RequestState& request, std::span<const int32_t> eos_token_ids) {
  std::vector<std::pair<float*, float>> ends;
  for (const std::span<const int32_t> ids : {eos_token_ids, std::span<const int32_t>(request.sampling.stop_token_ids)}) {
    for (const int32_t token : ids) {
      if (float* logit = row.at(token); logit != nullptr && may_end(*request.mask)) ends.emplace_back(logit, *logit);
    }
  }
  row.keep(*request.mask);
  for (const auto& [logit, value] : ends) *logit = value;
}

// The last token of a sequence is forbidden when the text ends with all of the sequence but that.
void forbid_bad_words(const Row& row, const RequestState& request) {
  for (const std::vector<int32_t>& word : request.sampling.bad_words) {
    if (word.empty()) continue;
    const size_t before = word.size() - 1;
    const auto outputs = static_cast<size_t>(request.num_output_tokens());
    if (before > outputs) continue;
    if (std::equal(word.begin(), word.end() - 1, request.token_ids.end() - static_cast<std::ptrdiff_t>(before))) row.forbid(word.back());
  }
}

void penalise(const Row& row, const RequestState& request) {
  const SamplingParams& sampling = request.sampling;
  const TokenHistory& history = *request.history;
  if (sampling.repetition_penalty != 1.0) {
    const auto penalty = static_cast<float>(sampling.repetition_penalty);
    const auto repeat = [&](int32_t token) {
      if (float* logit = row.at(token)) *logit = *logit > 0.0f ? *logit / penalty : *logit * penalty;
    };
    for (const auto& [token, count] : history.prompt_counts) repeat(token);
    for (const auto& [token, count] : history.output_counts) {
      if (!history.prompt_counts.contains(token)) repeat(token);
    }
  }
  if (sampling.frequency_penalty == 0.0 && sampling.presence_penalty == 0.0) return;
  for (const auto& [token, count] : history.output_counts) {
    if (float* logit = row.at(token)) {
      *logit -= static_cast<float>(sampling.frequency_penalty * count + sampling.presence_penalty);
    }
  }
}

}  // namespace

bool changes_logits(const RequestState& request) {
  const SamplingParams& sampling = request.sampling;
  return sampling.needs_history() || !sampling.grammar.empty() || !sampling.allowed_token_ids.empty() || !sampling.logit_bias.empty() ||
         request.num_output_tokens() < sampling.min_tokens;
}

void process_logits(std::span<float> logits, Range vocab, const RequestState& request, std::span<const int32_t> eos_token_ids) {
  const SamplingParams& sampling = request.sampling;
  const Row row(logits, vocab);
  if (request.mask) keep_to_grammar(row, request, eos_token_ids);
  if (!sampling.allowed_token_ids.empty()) row.allow_only(sampling.allowed_token_ids);
  if (!sampling.bad_words.empty()) forbid_bad_words(row, request);
  // Where a grammar has no way on, the text ends, however short.
  const bool only_end = request.mask && request.mask->none();
  if (request.num_output_tokens() < sampling.min_tokens && !only_end) {
    for (int32_t token : sampling.stop_token_ids) row.forbid(token);
    for (int32_t token : eos_token_ids) row.forbid(token);
  }
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (float* logit = row.at(token)) *logit += bias;
  }
  if (request.history) penalise(row, request);
}

}  // namespace tutti

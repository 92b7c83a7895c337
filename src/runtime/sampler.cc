#include "runtime/sampler.h"

#include <cmath>

#include "base/error.h"
#include "runtime/logits_processor.h"
#include "runtime/logprobs.h"
#include "runtime/random.h"

namespace tutti {

struct Sampler::Choice {
  size_t index = 0;  // in the list of rows
  RequestState* request = nullptr;
  int32_t token = -1;
  float best_logit = 0.0f;
};

namespace {

bool wants_logprobs(const LogitRow& row) { return row.samples && row.request->sampling.logprobs != -1; }

void check_numbers(float best_logit, const RequestState& request) {
  // A request that forbids every token has only itself to blame and gets the first one.
  if (std::isfinite(best_logit) || changes_logits(request)) return;
  throw_not_finite(request.id, static_cast<int64_t>(request.token_ids.size()));
}

}  // namespace

void throw_not_finite(RequestId id, int64_t position) {
  throw DeviceError("the logits of request " + std::to_string(id) + " at position " + std::to_string(position) +
                    " are not finite numbers: the weights or the memory are damaged");
}

Sampler::Sampler(Communicator& tp, std::vector<Range> vocab, std::vector<int32_t> eos_token_ids, uint64_t seed,
                 VocabularySource vocabulary)
    : tp_(tp), vocab_(vocab), gather_(tp, std::move(vocab)), eos_token_ids_(std::move(eos_token_ids)), seed_(seed),
      grammars_(std::move(vocabulary)) {}

std::vector<SampledToken> Sampler::sample(const Context& ctx, const Tensor& logits, std::span<const LogitRow> rows) {
  read_raw_rows(ctx, logits, rows);
  process(ctx, logits, rows);
  std::vector<Choice> by_candidates;
  std::vector<Choice> by_rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].samples) continue;
    (candidates_suffice(rows[i].request->sampling) ? by_candidates : by_rows).push_back({.index = i, .request = rows[i].request});
  }
  choose_by_candidates(ctx, logits, by_candidates);
  choose_by_rows(ctx, logits, by_rows);

  std::vector<int32_t> tokens(rows.size(), -1);
  for (const Choice& c : by_candidates) tokens[c.index] = c.token;
  for (const Choice& c : by_rows) tokens[c.index] = c.token;
  std::vector<SampledToken> result;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RequestState& request = *rows[i].request;
    if (result.empty() || result.back().id != request.id) {
      result.push_back({.id = request.id, .token_id = 0, .logprobs = {}, .prompt_logprobs = {}, .has_token = false});
    }
    SampledToken& sampled = result.back();
    if (rows[i].prompt_target >= 0) sampled.prompt_logprobs.push_back(std::move(prompt_logprobs_[i]));
    if (!rows[i].samples) continue;
    sampled.has_token = true;
    sampled.token_id = tokens[i];
    if (!raw_rows_[i].empty()) sampled.logprobs = compute_logprobs(raw_rows_[i], tokens[i], request.sampling.logprobs);
  }
  return result;
}

// Log-probabilities are those of the model, before anything is changed.
void Sampler::read_raw_rows(const Context& ctx, const Tensor& logits, std::span<const LogitRow> rows) {
  raw_rows_.assign(rows.size(), {});
  prompt_logprobs_.assign(rows.size(), {});
  std::vector<int64_t> wanted;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].prompt_target >= 0 || wants_logprobs(rows[i])) wanted.push_back(static_cast<int64_t>(i));
  }
  gather_.whole_rows(ctx, logits, wanted, [&](size_t index, std::span<const float> whole, int) {
    if (tp_.rank() != 0) return;
    const auto i = static_cast<size_t>(wanted[index]);
    if (rows[i].prompt_target >= 0) {
      prompt_logprobs_[i] = compute_logprobs(whole, rows[i].prompt_target, rows[i].request->sampling.prompt_logprobs);
    }
    if (wants_logprobs(rows[i])) raw_rows_[i].assign(whole.begin(), whole.end());
  });
}

void Sampler::process(const Context& ctx, const Tensor& logits, std::span<const LogitRow> rows) {
  for (const LogitRow& row : rows) {
    RequestState& request = *row.request;
    if (row.samples && !request.automaton && !request.sampling.grammar.empty()) request.automaton = grammars_.find(request.sampling.grammar);
  }
  const Range& own = vocab_[static_cast<size_t>(tp_.rank())];
  ctx.pool->parallel_for(static_cast<int64_t>(rows.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const LogitRow& row = rows[static_cast<size_t>(i)];
      if (!row.samples || !changes_logits(*row.request)) continue;
      RequestState& request = *row.request;
      if (request.automaton) {
        const auto prompt = static_cast<size_t>(request.num_prompt_tokens);
        request.mask = request.automaton->next(request.progress, std::span(request.token_ids).subspan(prompt));
      }
      process_logits({logits.row<float>(i), static_cast<size_t>(own.count)}, own, *row.request, eos_token_ids_);
    }
  });
}

void Sampler::choose_by_candidates(const Context& ctx, const Tensor& logits, std::span<Choice> choices) {
  if (choices.empty()) return;
  int32_t count = 1;
  bool random = false;
  std::vector<int64_t> rows;
  for (const Choice& c : choices) {
    count = std::max(count, num_candidates(c.request->sampling));
    random = random || !c.request->sampling.greedy();
    rows.push_back(static_cast<int64_t>(c.index));
  }
  const auto best = gather_.best(ctx, logits, rows, count);
  for (size_t i = 0; i < choices.size(); ++i) {
    Choice& c = choices[i];
    check_numbers(best[i].front().logit, *c.request);
    c.token = choose_from_candidates(best[i], c.request->sampling, draw(*c.request));
  }
  // The best of a row is the same on every rank; a draw depends on how a processor computes exp().
  if (random) share(choices);
}

void Sampler::choose_by_rows(const Context& ctx, const Tensor& logits, std::span<Choice> choices) {
  if (choices.empty()) return;
  std::vector<int64_t> rows;
  for (const Choice& c : choices) rows.push_back(static_cast<int64_t>(c.index));
  scratch_.resize(static_cast<size_t>(ctx.pool->size()));
  gather_.whole_rows(ctx, logits, rows, [&](size_t index, std::span<const float> whole, int thread) {
    if (tp_.rank() != 0) return;
    Choice& c = choices[index];
    c.best_logit = best_candidate(whole).logit;
    c.token = choose_token(whole, c.request->sampling, draw(*c.request), scratch_[static_cast<size_t>(thread)]);
  });
  for (const Choice& c : choices) check_numbers(c.best_logit, *c.request);
  share(choices);
}

// The first rank's choices count.
void Sampler::share(std::span<Choice> choices) {
  std::vector<int32_t> tokens;
  for (const Choice& c : choices) tokens.push_back(c.token);
  tp_.broadcast(tokens.data(), tokens.size() * sizeof(int32_t), 0);
  for (size_t i = 0; i < choices.size(); ++i) choices[i].token = tokens[i];
}

bool Sampler::draws_suffice(const SamplingParams& sampling, int64_t vocab_size) {
  return sampling.greedy() || sampling.top_k <= 0 || sampling.top_k >= vocab_size;
}

ops::TokenDraw Sampler::token_draw(const RequestState& request) const {
  const SamplingParams& s = request.sampling;
  if (s.greedy()) return {};
  return {.draw = draw(request), .inverse_temperature = static_cast<float>(1.0 / s.temperature), .top_p = static_cast<float>(s.top_p),
          .min_weight = static_cast<float>(s.min_p)};
}

double Sampler::draw(const RequestState& request) const {
  const uint64_t own = seed_ * 0x9E3779B97F4A7C15ULL ^ (request.id + 1) * 0xD1B54A32D192ED03ULL;
  return uniform(request.sampling.seed.value_or(own), request.token_ids.size());
}

}  // namespace tutti

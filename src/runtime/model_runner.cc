#include "runtime/model_runner.h"

#include <algorithm>

namespace tutti {
namespace {

// The rows of one request may lie in two chunks.
void merge(std::vector<SampledToken>& all, SampledToken next) {
  if (all.empty() || all.back().id != next.id) {
    all.push_back(std::move(next));
    return;
  }
  auto prompt_logprobs = std::move(all.back().prompt_logprobs);
  prompt_logprobs.insert(prompt_logprobs.end(), std::make_move_iterator(next.prompt_logprobs.begin()),
                         std::make_move_iterator(next.prompt_logprobs.end()));
  all.back() = std::move(next);
  all.back().prompt_logprobs = std::move(prompt_logprobs);
}

}  // namespace

ModelRunner::ModelRunner(const Context& ctx, const DecoderModel& model, const KVCache& cache, Communicator& tp, Communicator& pp,
                         std::vector<Range> vocab, std::vector<int32_t> eos_token_ids, uint64_t seed)
    : ctx_(ctx),
      model_(model),
      cache_(cache),
      tp_(tp),
      pp_(pp),
      batch_(cache.shape().block_size),
      relay_(pp),
      sampler_(tp, std::move(vocab), std::move(eos_token_ids), seed) {}

std::vector<SampledToken> ModelRunner::run(const SchedulerOutput& step) {
  ctx_.arena->reset();
  if (step.step == 1) relay_.clear();
  batch_.apply(step);
  // Tokens of steps long gone are fetched whether or not they are needed, so that none are left behind.
  const int64_t settled = step.step - 2 * pp_.size() - 2;
  const int64_t needed = std::max(batch_.depends_on(step), settled);
  relay_.begin_step(needed, [&](const SampledRow& row, int32_t token) {
    RequestState* request = batch_.find(row.id);
    if (request != nullptr && request->incarnation == row.incarnation) request->append(token);
  });
  return step.scheduled.empty() ? std::vector<SampledToken>() : run_rows(step, needed);
}

std::vector<SampledToken> ModelRunner::run_rows(const SchedulerOutput& step, int64_t needed) {
  const StepInputs inputs = batch_.build(ctx_, step);
  const ForwardStep forward{ctx_, inputs.meta, cache_.layers()};
  Residual r(ctx_, tp_, inputs.meta.num_tokens, model_.config().hidden_size);
  if (model_.is_first_stage()) {
    model_.embed(forward, inputs.ids, r);
  } else {
    receive_hidden(r);
    if (model_.is_last_stage()) relay_.others_have(needed);
  }
  model_.layers(forward, r);
  std::vector<SampledToken> sampled;
  if (model_.is_last_stage()) {
    sampled = sample(forward, inputs, r);
  } else {
    send_hidden(r);
  }
  note_sampled(step, sampled);
  return sampled;
}

std::vector<SampledToken> ModelRunner::sample(const ForwardStep& forward, const StepInputs& inputs, Residual& r) {
  const auto count = static_cast<int64_t>(inputs.logit_rows.size());
  if (count == 0) return {};
  const Tensor rows = ctx_.arena->allocate({count}, DType::kI32);
  for (int64_t i = 0; i < count; ++i) {
    rows.data_as<int32_t>()[i] = static_cast<int32_t>(inputs.logit_rows[static_cast<size_t>(i)].row);
  }
  const Tensor& hidden = model_.last_hidden(rows, r);
  const std::span<const LogitRow> all = inputs.logit_rows;
  std::vector<SampledToken> sampled;
  for (int64_t begin = 0; begin < count; begin += kLogitRowsAtOnce) {
    const ArenaScope scratch(ctx_);
    const int64_t n = std::min(kLogitRowsAtOnce, count - begin);
    auto part = sampler_.sample(ctx_, model_.logits(forward, hidden.slice(0, begin, n)),
                                all.subspan(static_cast<size_t>(begin), static_cast<size_t>(n)));
    for (SampledToken& next : part) merge(sampled, std::move(next));
  }
  return sampled;
}

void ModelRunner::receive_hidden(Residual& r) {
  const Tensor& hidden = r.hidden();
  pp_.recv(hidden.data(), hidden.bytes(), pp_.rank() - 1);
}

void ModelRunner::send_hidden(Residual& r) {
  const Tensor& hidden = r.hidden();
  pp_.send(hidden.data(), hidden.bytes(), pp_.rank() + 1);
}

// The last stage knows the tokens, the others will get them.
void ModelRunner::note_sampled(const SchedulerOutput& step, const std::vector<SampledToken>& sampled) {
  std::vector<SampledRow> expected;
  for (const ScheduledRequest& part : step.scheduled) {
    if (!part.samples) continue;
    RequestState& request = *batch_.find(part.id);
    request.last_sampled_step = step.step;
    expected.push_back({part.id, request.incarnation});
  }
  if (!model_.is_last_stage()) {
    relay_.expect(step.step, std::move(expected));
    return;
  }
  std::vector<int32_t> tokens;
  for (const SampledToken& token : sampled) {
    if (!token.has_token) continue;
    batch_.find(token.id)->append(token.token_id);
    tokens.push_back(token.token_id);
  }
  CHECK_EQ(tokens.size(), expected.size());
  relay_.publish(step.step, std::move(tokens));
}

}  // namespace tutti

#include "runtime/model_runner.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/cuda_context.h"
#include "ops/ops.h"
#include "runtime/logits_processor.h"

namespace tutti {
namespace {

constexpr size_t kHostArenaBytes = size_t{1} << 30;  // address space: the sampler's rows under tensor parallelism

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

// Every request has one row, whose logits choose its next token.
bool is_decode(const SchedulerOutput& step) {
  return std::all_of(step.scheduled.begin(), step.scheduled.end(),
                     [](const ScheduledRequest& part) { return part.num_tokens == 1 && part.samples; });
}

}  // namespace

ModelRunner::ModelRunner(const RunnerParts& parts, const SchedulerConfig& scheduler, std::vector<Range> vocab,
                         std::vector<int32_t> eos_token_ids, uint64_t seed, VocabularySource vocabulary)
    : parts_(parts),
      batch_(parts.cache.shape().block_size),
      relay_(parts.pp),
      sampler_(parts.tp, std::move(vocab), std::move(eos_token_ids), seed, std::move(vocabulary)),
      graphs_(parts.ctx) {
  if (parts.ctx.device.is_cpu()) return;
  const int64_t block_size = parts.cache.shape().block_size;
  device_ = std::make_unique<DeviceStep>(parts.ctx, std::max(scheduler.max_num_batched_tokens, scheduler.max_num_seqs),
                                         scheduler.max_num_seqs, (scheduler.max_model_len + block_size - 1) / block_size);
  host_arena_ = std::make_unique<Arena>(kHostArenaBytes, Device::cpu());
  host_ctx_.pool = parts.ctx.pool;
  host_ctx_.arena = host_arena_.get();
}

ModelRunner::~ModelRunner() = default;

void ModelRunner::start(const SchedulerOutput& step) {
  CHECK_LT(started_.size(), kMaxStarted);
  parts_.ctx.arena->reset();
  if (step.step == 1) {
    relay_.clear();
    started_.clear();
  }
  batch_.apply(step);
  // Tokens of steps that the engine has seen the end of are fetched whether or not they are needed, so that none are left behind.
  const int64_t settled = step.step - parts_.pp.size() - 1;
  const int64_t needed = std::max(batch_.depends_on(step), settled);
  relay_.begin_step(needed, [&](const SampledRow& row, int32_t token) {
    RequestState* request = batch_.find(row.id, row.incarnation);
    if (request != nullptr) request->append(token);
  });
  started_.push_back({.step = step.step});
  if (step.scheduled.empty()) return;
  if (device_ != nullptr) {
    run_on_gpu(step, needed);
  } else {
    run_on_cpu(step, needed);
  }
}

bool ModelRunner::ready() const {
  return !started_.empty() && (started_.front().pending.empty() || device_->ready(started_.front().ticket));
}

std::vector<SampledToken> ModelRunner::finish() {
  CHECK(!started_.empty());
  Started step = std::move(started_.front());
  started_.pop_front();
  if (step.pending.empty()) return std::move(step.sampled);
  const DeviceStep::Answer answer = device_->read(step.ticket);
  for (size_t i = 0; i < step.pending.size(); ++i) {
    const Pending& p = step.pending[i];
    if (!std::isfinite(answer.values[i])) throw_not_finite(p.id, p.position);
    step.sampled[i].token_id = answer.tokens[i];
    RequestState* request = batch_.find(p.id, p.incarnation);
    if (request != nullptr) request->settle(p.position, answer.tokens[i]);
  }
  return std::move(step.sampled);
}

void ModelRunner::forward(const ForwardStep& step, const ops::TokenIds& tokens, Residual& r, int64_t needed) {
  if (parts_.model.is_first_stage()) {
    parts_.model.embed(step, tokens, r);
  } else {
    const Tensor& hidden = r.hidden();
    parts_.pp_tensors.recv(hidden.data(), hidden.bytes(), parts_.pp.rank() - 1);
    if (parts_.model.is_last_stage()) relay_.others_have(needed);
  }
  parts_.model.layers(step, r);
  if (parts_.model.is_last_stage()) return;
  const Tensor& hidden = r.hidden();
  parts_.pp_tensors.send(hidden.data(), hidden.bytes(), parts_.pp.rank() + 1);
}

void ModelRunner::run_on_cpu(const SchedulerOutput& step, int64_t needed) {
  const Context& ctx = parts_.ctx;
  const StepInputs inputs = batch_.build(*ctx.arena, step);
  const ForwardStep forward_step{ctx, inputs.meta, parts_.cache.layers()};
  Residual r(ctx, parts_.tp_tensors, inputs.meta.num_tokens, parts_.model.config().hidden_size);
  forward(forward_step, {inputs.ids, Tensor()}, r, needed);
  if (parts_.model.is_last_stage()) started_.back().sampled = sample(forward_step, inputs, r);
  note_sampled(step, started_.back().sampled);
}

void ModelRunner::run_on_gpu(const SchedulerOutput& step, int64_t needed) {
  const Context& ctx = parts_.ctx;
  const int64_t padded = is_decode(step) ? graphs_.padded(static_cast<int64_t>(step.scheduled.size())) : 0;
  StepInputs host = batch_.build(device_->next_inputs(), step, padded);
  const bool last = parts_.model.is_last_stage();
  const bool on_gpu = last && gpu_can_choose(host.logit_rows);
  fill_draws(host, on_gpu);
  const StepInputs inputs = device_->upload(std::move(host), padded > 0);
  const std::span<const LogitRow> rows = inputs.logit_rows;
  device_->begin_kernels();
  if (padded > 0) {
    graphs_.launch(padded);
    device_->end_kernels();
    if (last) relay_.others_have(needed);
    if (last && !on_gpu) started_.back().sampled = sample_rows(graph_logits_.at(padded), rows);
  } else {
    const ForwardStep forward_step{ctx, inputs.meta, parts_.cache.layers()};
    Residual r(ctx, parts_.tp_tensors, inputs.meta.num_tokens, parts_.model.config().hidden_size);
    forward(forward_step, {inputs.ids, device_->tokens()}, r, needed);
    if (on_gpu) {
      choose_tokens(forward_step, inputs, r);
      device_->end_kernels();
    } else if (last) {
      started_.back().sampled = sample(forward_step, inputs, r);
    }
  }
  if (on_gpu && parts_.pp.size() > 1) started_.back().sampled = take_chosen(rows);  // the first stage waits for them
  if (on_gpu && parts_.pp.size() == 1) {
    note_pending(rows);
    for (RequestState* request : sampling_requests(step)) request->last_sampled_step = step.step;
    return;
  }
  note_sampled(step, started_.back().sampled);
}

bool ModelRunner::gpu_can_choose(std::span<const LogitRow> rows) const {
  if (rows.empty()) return false;
  return std::all_of(rows.begin(), rows.end(), [this](const LogitRow& row) {
    const SamplingParams& sampling = row.request->sampling;
    const bool enough = parts_.tp.size() == 1 ? Sampler::draws_suffice(sampling, parts_.model.config().vocab_size) : sampling.greedy();
    return row.samples && row.prompt_target < 0 && sampling.logprobs == -1 && !changes_logits(*row.request) && enough;
  });
}

// Rows beyond the step's own, and those that the host chooses for, take the largest: it costs the least.
void ModelRunner::fill_draws(StepInputs& host, bool on_gpu) const {
  auto* draws = reinterpret_cast<ops::TokenDraw*>(host.draws.data());
  const auto count = host.draws.bytes() / sizeof(ops::TokenDraw);
  for (size_t i = 0; i < count; ++i) {
    const bool own = on_gpu && i < host.logit_rows.size();
    draws[i] = own ? sampler_.token_draw(*host.logit_rows[i].request) : ops::TokenDraw{};
  }
}

Tensor ModelRunner::choose_tokens(const ForwardStep& step, const StepInputs& inputs, Residual& r) {
  const Context& ctx = step.ctx;
  const ops::Input hidden = parts_.model.last_hidden(inputs.logit_row_ids, r);
  const int64_t count = hidden.x.size(0);
  Tensor logits;
  for (int64_t begin = 0; begin < count; begin += kLogitRowsAtOnce) {
    const ArenaScope scratch(ctx);
    const int64_t n = std::min(kLogitRowsAtOnce, count - begin);
    logits = parts_.model.logits(step, hidden.rows(begin, n));
    const Tensor values = device_->values().slice(0, begin, n), tokens = device_->tokens().slice(0, begin, n);
    if (parts_.tp_tensors.size() > 1) {
      best_of_ranks(logits, values, tokens);
      continue;
    }
    constexpr auto kBytes = static_cast<int64_t>(sizeof(ops::TokenDraw));
    ops::draw_tokens(ctx, logits, inputs.draws.slice(0, begin * kBytes, n * kBytes), values, tokens);
  }
  return logits;
}

// Where the vocabulary is cut, ranks exchange the best of their parts; to draw they would need all of it.
void ModelRunner::best_of_ranks(const Tensor& logits, const Tensor& values, const Tensor& tokens) {
  const Context& ctx = parts_.ctx;
  const ArenaScope scratch(ctx);
  const int64_t n = logits.size(0);
  const Tensor own = ctx.arena->allocate({2, n}, DType::kI32);
  const Tensor all = ctx.arena->allocate({parts_.tp_tensors.size(), 2, n}, DType::kI32);
  ops::argmax(ctx, logits, Tensor::view(own.row<float>(1), {n}, DType::kF32, ctx.device), own.slice(0, 0, 1).reshape({n}),
              parts_.model.partition().vocab.begin);
  parts_.tp_tensors.all_gather(own.data(), all.data(), own.bytes());
  ops::best_of_parts(ctx, all, values, tokens);
}

Tensor ModelRunner::run_whole(const StepInputs& inputs) {
  const Context& ctx = parts_.ctx;
  ctx.arena->reset();
  const ForwardStep step{ctx, inputs.meta, parts_.cache.layers()};
  Residual r(ctx, parts_.tp_tensors, inputs.meta.num_tokens, parts_.model.config().hidden_size);
  forward(step, {inputs.ids, device_->tokens()}, r, 0);
  return parts_.model.is_last_stage() ? choose_tokens(step, inputs, r) : Tensor();
}

StepInputs ModelRunner::nobodys_inputs(int64_t rows) {
  StepInputs host = batch_.build(device_->next_inputs(), SchedulerOutput{}, rows);
  fill_draws(host, /*on_gpu=*/false);
  return host;
}

void ModelRunner::rehearse(int64_t rows, bool decode) {
  StepInputs inputs = device_->upload(nobodys_inputs(rows), false);
  AttentionMetadata& meta = inputs.meta;
  if (!decode) meta.num_seqs = 1;
  meta.query_start = meta.query_start.slice(0, 0, meta.num_seqs + 1);
  meta.seq_lens = meta.seq_lens.slice(0, 0, meta.num_seqs);
  inputs.logit_row_ids = inputs.logit_row_ids.slice(0, 0, std::min(rows, device_->tokens().size(0)));
  run_whole(inputs);
  cuda::synchronize(cuda_stream(*parts_.ctx.cuda));
}

void ModelRunner::capture(int64_t rows) {
  const StepInputs inputs = device_->upload(nobodys_inputs(rows), false);
  cuda::synchronize(cuda_stream(*parts_.ctx.cuda));
  graphs_.capture(rows, [&] { graph_logits_[rows] = run_whole(inputs); });
}

std::vector<SampledToken> ModelRunner::sample(const ForwardStep& step, const StepInputs& inputs, Residual& r) {
  const Context& ctx = step.ctx;
  const auto count = static_cast<int64_t>(inputs.logit_rows.size());
  if (count == 0) return {};
  const ops::Input hidden = parts_.model.last_hidden(inputs.logit_row_ids, r);
  const std::span<const LogitRow> all = inputs.logit_rows;
  std::vector<SampledToken> sampled;
  for (int64_t begin = 0; begin < count; begin += kLogitRowsAtOnce) {
    const ArenaScope scratch(ctx);
    const int64_t n = std::min(kLogitRowsAtOnce, count - begin);
    auto part = sample_rows(parts_.model.logits(step, hidden.rows(begin, n)),
                            all.subspan(static_cast<size_t>(begin), static_cast<size_t>(n)));
    for (SampledToken& next : part) merge(sampled, std::move(next));
  }
  return sampled;
}

// `logits` has at least as many rows.
std::vector<SampledToken> ModelRunner::sample_rows(const Tensor& logits, std::span<const LogitRow> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  if (device_ == nullptr) return sampler_.sample(parts_.ctx, logits, rows);
  const int64_t columns = logits.size(1);
  if (!host_logits_.defined()) {
    auto buffer = cuda::allocate_pinned(static_cast<size_t>(kLogitRowsAtOnce * columns) * sizeof(float));
    host_logits_ = Tensor::view(buffer->data(), {kLogitRowsAtOnce, columns}, DType::kF32, Device::cpu(), buffer);
  }
  void* stream = cuda_stream(*parts_.ctx.cuda);
  const Tensor here = host_logits_.slice(0, 0, count);
  cuda::copy_async(here.data(), logits.data(), here.bytes(), stream);
  watch_tensors();
  cuda::synchronize(stream);
  host_arena_->reset();
  return sampler_.sample(host_ctx_, here, rows);
}

// Their tokens come with finish().
void ModelRunner::note_pending(std::span<const LogitRow> rows) {
  Started& step = started_.back();
  for (size_t i = 0; i < rows.size(); ++i) {
    RequestState& request = *rows[i].request;
    step.sampled.push_back({.id = request.id});
    step.pending.push_back({request.id, request.incarnation, static_cast<int64_t>(request.token_ids.size())});
    request.append_pending(static_cast<int64_t>(i));
  }
  step.ticket = device_->fetch(static_cast<int64_t>(rows.size()));
}

// Before a wait for the GPU, which a lost rank must not make endless.
void ModelRunner::watch_tensors() {
  parts_.tp_tensors.watch();
  parts_.pp_tensors.watch();
}

// The same at once: waits for the step to end.
std::vector<SampledToken> ModelRunner::take_chosen(std::span<const LogitRow> rows) {
  const size_t ticket = device_->fetch(static_cast<int64_t>(rows.size()));
  watch_tensors();
  const DeviceStep::Answer answer = device_->read(ticket);
  std::vector<SampledToken> sampled;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RequestState& request = *rows[i].request;
    if (!std::isfinite(answer.values[i])) throw_not_finite(request.id, static_cast<int64_t>(request.token_ids.size()));
    sampled.push_back({.id = request.id, .token_id = answer.tokens[i]});
  }
  return sampled;
}

std::vector<RequestState*> ModelRunner::sampling_requests(const SchedulerOutput& step) {
  std::vector<RequestState*> requests;
  for (const ScheduledRequest& part : step.scheduled) {
    if (part.samples) requests.push_back(batch_.find(part.id));
  }
  return requests;
}

// The last stage knows the tokens, the others will get them.
void ModelRunner::note_sampled(const SchedulerOutput& step, const std::vector<SampledToken>& sampled) {
  std::vector<SampledRow> expected;
  for (RequestState* request : sampling_requests(step)) {
    request->last_sampled_step = step.step;
    expected.push_back({request->id, request->incarnation});
  }
  if (!parts_.model.is_last_stage()) {
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

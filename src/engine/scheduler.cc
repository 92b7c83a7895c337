#include "engine/scheduler.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace tutti {
namespace {

constexpr int kPiecesPerStage = 4;
constexpr int64_t kBlocksWorthWaiting = 4;  // that prompts share: computing less again costs less than a step
// Grammars of the running requests that differ. Each takes memory and time of the ranks (grammar/automaton.cc has the limits).
constexpr size_t kMaxForms = 64;
// A step is one message, and a message has a largest size. Of requests that workers do not know yet it holds all tokens,
// however few of them it computes: prompts with a long cached prefix would fill it without filling the budget.
constexpr int64_t kMostNewNumbers = 4 << 20;  // of four bytes each; one request may have more, alone

int64_t numbers_to_send(const Request& request) {
  const SamplingParams& sampling = request.spec.sampling;
  size_t numbers = request.tokens.size() + sampling.stop_token_ids.size() + sampling.allowed_token_ids.size() +
                   2 * sampling.logit_bias.size() + sampling.grammar.bytes().size() / sizeof(int32_t);
  for (const std::vector<int32_t>& word : sampling.bad_words) numbers += word.size() + 1;
  return static_cast<int64_t>(numbers);
}

}  // namespace

struct Scheduler::Step {
  SchedulerOutput output;
  InFlight record;
  int64_t budget = 0;
  int64_t decode_rows_left = 0;  // bounds one micro-batch of a pipeline
  int64_t new_numbers = 0;       // of new_requests
  bool preempted = false;
};

// What running requests compute that others may wait for.
struct Scheduler::BlocksInWork {
  // Of each the block with which there is enough to wait for; the request furthest ahead when there are several.
  std::map<BlockHash, const Request*> by_hash;
  void add(const Request& request);
};

Scheduler::Scheduler(const Options& options)
    : options_(options),
      block_times_(std::make_unique<KVBlockTimes>(options.kv_metrics_sample)),
      kv_(options.num_kv_blocks, options.block_size, options.enable_prefix_caching, block_times_.get()) {}

Scheduler::~Scheduler() = default;

Scheduler::Rank Scheduler::rank_of(const Request& request) const {
  return {options_.scheduler.priority_policy ? request.spec.priority : 0, request.order};
}

Request* Scheduler::find(RequestId id) {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : it->second.get();
}

void Scheduler::add(EngineRequest spec) {
  const RequestId id = spec.id;
  CHECK(!requests_.contains(id));
  auto request = std::make_unique<Request>();
  request->tokens = std::move(spec.prompt_token_ids);
  request->num_prompt_tokens = request->num_tokens();
  request->order = next_order_++;
  if (spec.deadline) ++num_with_deadline_;
  request->spec = std::move(spec);
  request->form = std::hash<std::string>()(request->spec.sampling.grammar.bytes());
  Request& r = *requests_.emplace(id, std::move(request)).first->second;
  waiting_.emplace(rank_of(r), &r);
  const int64_t needed = kv_.blocks_for(r.num_prompt_tokens + 1);
  if (needed > kv_.pool().num_blocks()) {
    abort(id, FinishReason::kError,
          "the prompt of " + std::to_string(r.num_prompt_tokens) + " tokens needs " + std::to_string(needed) +
              " KV blocks, but the cache has " + std::to_string(kv_.pool().num_blocks()) +
              ": shorten the prompt or give the cache more memory");
    return;
  }
  kv_.extend_hashes(r);
}

void Scheduler::abort(RequestId id, FinishReason reason, const std::string& error) {
  Request* request = find(id);
  if (request == nullptr) return;
  finish(*request, TokenOutput{.id = id, .finish_reason = reason, .error = error});
}

void Scheduler::abort_all(FinishReason reason, const std::string& error) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (RequestId id : ids) abort(id, reason, error);
}

std::optional<RequestId> Scheduler::newest_running() const {
  if (running_.empty()) return std::nullopt;
  const auto newest = std::max_element(running_.begin(), running_.end(), [](const auto& a, const auto& b) { return a.second->order < b.second->order; });
  return newest->second->spec.id;
}

void Scheduler::restart() {
  in_flight_.clear();
  dropped_.clear();
  next_step_ = 1;
  for (const auto& [id, owner] : requests_) {
    Request& request = *owner;
    if (request.running) {
      stop_running(request);
      waiting_.emplace(rank_of(request), &request);
      ++request.incarnation;  // one that has never run is still to start for the first time
    }
    request.known_to_workers = false;
    request.num_computed_tokens = 0;
    request.num_confirmed_tokens = 0;
    request.num_pending = 0;  // sampled again: the same seed gives the same tokens
    request.last_step = 0;
    request.prompt_logprobs.clear();
    request.block_ids.clear();
    request.num_cached_blocks = 0;
  }
  block_times_->forget();
  kv_ = KVCacheManager(options_.num_kv_blocks, options_.block_size, options_.enable_prefix_caching, block_times_.get());
}

void Scheduler::finish(Request& request, TokenOutput output) {
  output.num_cached_tokens = request.num_cached_tokens;
  output.started = request.started;
  outputs_.push_back(std::move(output));
  if (request.running) {
    stop_running(request);
  } else {
    waiting_.erase(rank_of(request));
  }
  kv_.release(request);
  if (request.known_to_workers) dropped_.push_back(request.spec.id);
  if (request.spec.deadline) --num_with_deadline_;
  requests_.erase(request.spec.id);
}

void Scheduler::expire() {
  if (num_with_deadline_ == 0) return;
  const auto now = Clock::now();
  std::vector<RequestId> late;
  for (const auto& [id, request] : requests_) {
    if (request->spec.deadline && *request->spec.deadline <= now) late.push_back(id);
  }
  for (RequestId id : late) abort(id, FinishReason::kError, "the request's deadline has passed");
}

// Whether another token of a running request may be put into a step now.
bool Scheduler::can_advance(const Request& request) const {
  if (request.num_owed() <= 0) return false;
  if (request.num_pending == 0) return true;
  if (!options_.look_ahead || request.num_pending > 1) return false;
  // The pending token may be its last: then the row would be computed for nothing.
  const int64_t outputs = request.num_output_tokens() + request.num_pending;
  return outputs < request.spec.sampling.max_tokens &&
         request.num_tokens() + request.num_pending < options_.scheduler.max_model_len;
}

int64_t Scheduler::chunk(const Request& request, int64_t budget) const {
  int64_t n = request.num_owed();
  const int64_t threshold = options_.scheduler.long_prefill_token_threshold;
  if (threshold > 0) n = std::min(n, threshold);
  if (n > budget && !options_.scheduler.enable_chunked_prefill && request.num_computed_tokens == 0 &&
      n <= options_.scheduler.max_num_batched_tokens) {
    return 0;  // waits for a step that has room for all of it
  }
  return std::min(n, budget);
}

SchedulerOutput Scheduler::schedule() {
  expire();
  Step step;
  fill(step);
  // A request that only gave way to itself can start again at once.
  if (step.output.scheduled.empty() && step.preempted) {
    step = Step();
    fill(step);
  }
  if (step.output.scheduled.empty()) return {};
  step.output.dropped = std::exchange(dropped_, {});
  step.output.step = step.record.step = next_step_++;
  in_flight_.push_back(std::move(step.record));
  return std::move(step.output);
}

void Scheduler::fill(Step& step) {
  step.budget = options_.scheduler.max_num_batched_tokens;
  step.decode_rows_left = options_.scheduler.max_num_seqs;
  if (options_.pipeline_stages > 1) {
    // Each of the steps in flight takes its share of the running requests, so that all stages have work. Prompts are cut
    // into several steps for each stage: while one computes a piece the next stage has the piece before.
    step.decode_rows_left = std::max<int64_t>(1, (num_running() + options_.pipeline_stages - 1) / options_.pipeline_stages);
    if (options_.scheduler.enable_chunked_prefill) step.budget = std::min(step.budget, pipeline_piece(step));
    // The step that is sent ahead holds prompts alone: rows that decode would be spread over more steps than there are stages.
    const auto decoding = std::count_if(in_flight_.begin(), in_flight_.end(), [](const InFlight& other) { return other.decodes; });
    if (decoding >= options_.pipeline_stages) step.decode_rows_left = 0;
  }
  step.output.scheduled.reserve(running_.size());
  step.record.parts.reserve(running_.size());
  schedule_running(step, /*decodes=*/true);
  schedule_running(step, /*decodes=*/false);
  // Whoever was preempted in this step would only take back the blocks that it has just given.
  if (!step.preempted) schedule_waiting(step);
}

// Rows of one step of a pipeline.
int64_t Scheduler::pipeline_piece(const Step& step) const {
  const int64_t pieces = int64_t{kPiecesPerStage} * options_.pipeline_stages;
  const int64_t enough = step.budget * pieces;
  int64_t owed = 0;  // prompt tokens
  for (const auto* queue : {&running_, &waiting_}) {
    for (auto it = queue->begin(); it != queue->end() && owed < enough; ++it) {
      owed += std::max<int64_t>(0, it->second->num_tokens() - 1 - it->second->num_computed_tokens);
    }
  }
  return std::clamp(owed / pieces, options_.smallest_piece, options_.largest_piece) + step.decode_rows_left;
}

void Scheduler::schedule_running(Step& step, bool decodes) {
  // Preemption takes requests out of running_ while we walk it, always from the end.
  for (auto it = running_.begin(); it != running_.end() && step.budget > 0;) {
    Request& request = *it->second;
    const bool is_decode = request.num_owed() == 1 && request.num_computed_tokens >= request.num_prompt_tokens;
    if (is_decode != decodes || placed(request) || !can_advance(request) ||
        (decodes && step.decode_rows_left == 0)) {
      ++it;
      continue;
    }
    const int64_t n = chunk(request, step.budget);
    std::vector<int32_t> new_blocks;
    const Rank rank = it->first;
    const int64_t before = num_running();
    if (n > 0 && make_room(step, request, request.num_computed_tokens + n, &new_blocks)) {
      place(step, request, n, std::move(new_blocks));
      if (decodes) {
        --step.decode_rows_left;
        step.record.decodes = true;
      }
    }
    it = num_running() == before ? std::next(it) : running_.upper_bound(rank);
  }
}

// Blocks for `num_tokens` of a running request; preempts the last in line until there are enough. False when the
// request itself was preempted, or has ended because the whole cache cannot hold it.
bool Scheduler::make_room(Step& step, Request& request, int64_t num_tokens, std::vector<int32_t>* new_blocks) {
  if (kv_.blocks_for(num_tokens) > kv_.pool().num_blocks()) {
    abort(request.spec.id, FinishReason::kError,
          "the KV cache (" + std::to_string(kv_.pool().num_blocks() * kv_.block_size()) +
              " tokens) is full with this request alone: lower max_tokens or give the cache more memory");
    return false;
  }
  while (true) {
    auto blocks = kv_.allocate(request, num_tokens);
    if (blocks) {
      *new_blocks = std::move(*blocks);
      return true;
    }
    // Requests that already have rows in this step keep them.
    auto victim = std::find_if(running_.rbegin(), running_.rend(),
                               [this](const auto& entry) { return !placed(*entry.second); });
    CHECK(victim != running_.rend());
    Request& last = *victim->second;
    const bool self = &last == &request;
    preempt(step, last);
    if (self) return false;
  }
}

void Scheduler::preempt(Step& step, Request& request) {
  step.preempted = true;
  stop_running(request);
  kv_.release(request);
  request.num_computed_tokens = 0;
  request.num_confirmed_tokens = 0;
  request.prompt_logprobs.clear();  // its prompt is computed again
  ++request.incarnation;
  if (request.known_to_workers) dropped_.push_back(request.spec.id);
  request.known_to_workers = false;
  waiting_.emplace(rank_of(request), &request);
  ++counters_.num_preemptions;
}

// A request whose grammar would be one too many waits, and lets others pass; first in line, it starts with the next that ends.
bool Scheduler::may_bring_its_form(const Request& request) const {
  return request.spec.sampling.grammar.empty() || forms_.size() < kMaxForms || forms_.contains(request.form);
}

void Scheduler::start_running(Request& request) {
  running_.emplace(rank_of(request), &request);
  request.running = true;
  if (!request.spec.sampling.grammar.empty()) ++forms_[request.form];
}

void Scheduler::stop_running(Request& request) {
  running_.erase(rank_of(request));
  request.running = false;
  if (request.spec.sampling.grammar.empty()) return;
  const auto form = forms_.find(request.form);
  if (--form->second == 0) forms_.erase(form);
}

// Whether a running request ahead of it still computes enough of the blocks that both begin with: they are taken over then.
// Those ahead of it are finitely many, so that every wait ends.
bool Scheduler::waits_for_blocks(const Request& request) {
  const Request* other = find(request.waits_for);
  return other != nullptr && other->running && other->num_cached_blocks + kBlocksWorthWaiting <= request.num_shared_blocks;
}

void Scheduler::BlocksInWork::add(const Request& request) {
  const auto next = static_cast<size_t>(request.num_cached_blocks + kBlocksWorthWaiting - 1);
  if (next < request.block_hashes.size()) by_hash.emplace(request.block_hashes[next], &request);
}

// Lets the request wait when what it would compute after its `cached` blocks is being computed.
bool Scheduler::begins_to_wait(const BlocksInWork& in_work, Request& request, size_t cached) const {
  const size_t next = cached + static_cast<size_t>(kBlocksWorthWaiting) - 1;
  if (request.spec.sampling.prompt_logprobs != -1 || next >= request.block_hashes.size()) return false;
  const auto found = in_work.by_hash.find(request.block_hashes[next]);
  if (found == in_work.by_hash.end() || rank_of(request) < rank_of(*found->second)) return false;
  const Request& other = *found->second;
  const auto parting = std::mismatch(request.block_hashes.begin(), request.block_hashes.end(), other.block_hashes.begin(),
                                     other.block_hashes.end());
  request.waits_for = other.spec.id;
  request.num_shared_blocks = parting.first - request.block_hashes.begin();
  return true;
}

void Scheduler::schedule_waiting(Step& step) {
  if (waiting_.empty() || step.budget <= 0 || num_running() >= options_.scheduler.max_num_seqs) return;
  BlocksInWork in_work;
  for (const auto& [rank, running] : running_) in_work.add(*running);
  for (auto it = waiting_.begin(); it != waiting_.end() && step.budget > 0;) {
    if (num_running() >= options_.scheduler.max_num_seqs) return;
    Request& request = *it->second;
    // A preempted request whose last token is still in flight: its tokens are not all known yet.
    if (request.num_pending > 0 || waits_for_blocks(request) || !may_bring_its_form(request)) {
      ++it;
      continue;
    }
    const bool first = step.output.new_requests.empty();
    if (!first && step.new_numbers + numbers_to_send(request) > kMostNewNumbers) return;
    const std::vector<int32_t> prefix = kv_.find_prefix(request);
    if (begins_to_wait(in_work, request, prefix.size())) {
      ++it;
      continue;
    }
    request.num_computed_tokens = static_cast<int64_t>(prefix.size()) * kv_.block_size();
    const int64_t n = chunk(request, step.budget);
    auto blocks = n > 0 ? kv_.allocate(request, request.num_computed_tokens + n, prefix) : std::nullopt;
    if (!blocks) {
      request.num_computed_tokens = 0;
      return;  // those behind it do not overtake
    }
    if (request.incarnation == 0) {
      // Tokens that come back after a preemption are no prompt tokens: hits stay a part of those.
      if (options_.enable_prefix_caching) counters_.prefix_cache_queries += request.num_tokens();
      counters_.prefix_cache_hits += request.num_computed_tokens;
      request.started = Clock::now();
      request.num_cached_tokens = request.num_computed_tokens;
    }
    request.num_confirmed_tokens = request.num_computed_tokens;
    count_prompt(request, request.num_confirmed_tokens);
    it = waiting_.erase(it);
    start_running(request);
    in_work.add(request);
    place(step, request, n, std::move(*blocks));
  }
}

void Scheduler::place(Step& step, Request& request, int64_t num_tokens, std::vector<int32_t> new_blocks) {
  if (!request.known_to_workers) {
    step.new_numbers += numbers_to_send(request);
    step.output.new_requests.push_back({request.spec.id, request.tokens, static_cast<int32_t>(request.num_prompt_tokens),
                                        request.spec.sampling});
    request.known_to_workers = true;
  }
  const bool samples = request.num_computed_tokens + num_tokens == request.num_tokens() + request.num_pending;
  step.output.scheduled.push_back({request.spec.id, static_cast<int32_t>(num_tokens), request.num_computed_tokens,
                                   std::move(new_blocks), samples});
  request.num_computed_tokens += num_tokens;
  if (samples) ++request.num_pending;
  step.record.parts.push_back({request.spec.id, request.incarnation, request.num_computed_tokens, samples});
  step.budget -= num_tokens;
  request.last_step = next_step_;
}

void Scheduler::update(const ModelRunnerOutput& output) {
  CHECK(!in_flight_.empty());
  const InFlight record = std::move(in_flight_.front());
  in_flight_.pop_front();
  CHECK_EQ(output.step, record.step);
  outputs_.reserve(outputs_.size() + output.sampled.size());
  auto sampled = output.sampled.begin();
  for (const InFlight::Part& part : record.parts) {
    const SampledToken* token = sampled != output.sampled.end() && sampled->id == part.id ? &*sampled++ : nullptr;
    Request* request = find(part.id);
    if (request == nullptr) continue;  // ended while the step was in flight
    const bool current = request->incarnation == part.incarnation;
    if (current) confirm(*request, part.computed);
    if (token != nullptr) {
      if (current) collect_prompt_logprobs(*request, *token);
      if (token->has_token && append_token(*request, *token)) continue;
    }
    if (current) kv_.publish(*request, request->num_confirmed_tokens);
  }
  CHECK(sampled == output.sampled.end());
}

void Scheduler::confirm(Request& request, int64_t computed) {
  request.num_confirmed_tokens = std::max(request.num_confirmed_tokens, computed);
  count_prompt(request, request.num_confirmed_tokens);
}

// Each prompt token counts once, however often it is computed.
void Scheduler::count_prompt(Request& request, int64_t computed) {
  const int64_t known = std::min(computed, request.num_prompt_tokens);
  const int64_t fresh = std::max<int64_t>(0, known - request.num_counted_tokens);
  request.num_counted_tokens += fresh;
  counters_.prompt_tokens += fresh;
}

// Prompt logprobs come chunk by chunk. What is computed again after a preemption once the first token is out does not
// count.
void Scheduler::collect_prompt_logprobs(Request& request, const SampledToken& sampled) {
  if (sampled.prompt_logprobs.empty() || request.num_output_tokens() > 0) return;
  auto& all = request.prompt_logprobs;
  all.insert(all.end(), sampled.prompt_logprobs.begin(), sampled.prompt_logprobs.end());
}

// True when it was the request's last.
bool Scheduler::append_token(Request& request, const SampledToken& sampled) {
  CHECK_GT(request.num_pending, 0);
  --request.num_pending;
  count_prompt(request, request.num_prompt_tokens);  // it may end before what was preempted is computed again
  request.tokens.push_back(sampled.token_id);
  ++counters_.generation_tokens;
  TokenOutput output{.id = request.spec.id, .token_ids = {sampled.token_id}};
  if (!sampled.logprobs.empty()) output.logprobs = {sampled.logprobs};
  output.prompt_logprobs = std::exchange(request.prompt_logprobs, {});
  output.num_cached_tokens = request.num_cached_tokens;
  output.started = request.started;

  const SamplingParams& sampling = request.spec.sampling;
  const auto& stops = sampling.stop_token_ids;
  if (request.num_output_tokens() >= sampling.min_tokens &&
      std::find(stops.begin(), stops.end(), sampled.token_id) != stops.end()) {
    output.finish_reason = FinishReason::kStop;
    output.stop_token = sampled.token_id;
  } else if (request.num_output_tokens() >= sampling.max_tokens ||
             request.num_tokens() >= options_.scheduler.max_model_len) {
    output.finish_reason = FinishReason::kLength;
  }
  if (output.finish_reason == FinishReason::kNone) {
    outputs_.push_back(std::move(output));
    return false;
  }
  kv_.publish(request, request.num_confirmed_tokens);
  finish(request, std::move(output));
  return true;
}

std::vector<TokenOutput> Scheduler::take_outputs() { return std::exchange(outputs_, {}); }

void Scheduler::check_invariants() const {
  std::vector<int> holders(static_cast<size_t>(kv_.pool().num_blocks()), 0);
  for (const auto& [id, request] : requests_) {
    for (int32_t block : request->block_ids) ++holders[block];
  }
  kv_.pool().check_invariants(&holders);
  CHECK_EQ(waiting_.size() + running_.size(), requests_.size());
  int64_t with_form = 0, counted = 0;
  for (const auto& [rank, request] : running_) with_form += request->spec.sampling.grammar.empty() ? 0 : 1;
  for (const auto& [form, count] : forms_) counted += count;
  CHECK_EQ(with_form, counted);
  CHECK_LE(forms_.size(), kMaxForms);
}

}  // namespace tutti

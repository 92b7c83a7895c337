#include "server/async_engine.h"

#include <iterator>
#include <utility>

namespace tutti {

struct AsyncEngine::Stream {
  Mailbox* mailbox = nullptr;
  OnOutput on_output;
  RequestRecord record;
  bool closed = false;   // loop thread only
  bool merging = false;  // `pending` has something; loop thread only
  TokenOutput pending;
};

struct AsyncEngine::Mailbox {
  struct Delivery {
    std::shared_ptr<Stream> stream;
    TokenOutput output;
    Clock::time_point time;
  };
  EventLoop* loop = nullptr;
  std::mutex mutex;
  std::vector<Delivery> deliveries;
};

namespace {

template <typename T>
void append(std::vector<T>* to, std::vector<T>&& more) {
  if (to->empty()) {
    *to = std::move(more);
  } else {
    to->insert(to->end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
}

void merge(TokenOutput* into, TokenOutput&& next) {
  into->id = next.id;
  append(&into->token_ids, std::move(next.token_ids));
  append(&into->logprobs, std::move(next.logprobs));
  append(&into->prompt_logprobs, std::move(next.prompt_logprobs));
  into->finish_reason = next.finish_reason;
  into->stop_token = next.stop_token;
  into->error = std::move(next.error);
  into->num_cached_tokens = next.num_cached_tokens;
  into->started = next.started;
}

}  // namespace

AsyncEngine::AsyncEngine(const EngineConfig& config, std::vector<int32_t> eos_token_ids, Executor& executor,
                         Metrics& metrics)
    : metrics_(metrics),
      max_queue_size_(config.scheduler.max_queue_size),
      core_(config, std::move(eos_token_ids), executor,
            [this](std::vector<TokenOutput> outputs) { deliver(std::move(outputs)); }),
      thread_([this] { run(); }) {}

AsyncEngine::~AsyncEngine() { shutdown(); }

void AsyncEngine::shutdown() {
  stop();
  std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

void AsyncEngine::run() {
  core_.run();
  ended_ = true;
}

AsyncEngine::Admission AsyncEngine::submit(EngineRequest request, int n, EventLoop& loop,
                                           OnOutput on_output) {
  if (draining_) return Admission::kStopping;
  auto stream = std::make_shared<Stream>();
  stream->on_output = std::move(on_output);
  stream->record.arrival = request.arrival;
  stream->record.prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  stream->record.max_tokens = request.sampling.max_tokens;
  stream->record.n = n;
  const RequestId id = request.id;
  {
    std::lock_guard lock(mutex_);
    stream->mailbox = &mailbox_of(loop);
    streams_.emplace(id, stream);
  }
  // The stream is known before the engine is: its first output may come at once.
  if (core_.add_request(std::move(request))) return Admission::kAccepted;
  remove(id);
  if (!stats().healthy) return Admission::kBroken;
  return draining_ || ended_ ? Admission::kStopping : Admission::kQueueFull;
}

void AsyncEngine::end(RequestId id, FinishReason counted_as) {
  const std::shared_ptr<Stream> stream = remove(id);
  if (stream == nullptr) return;  // has just ended by itself
  core_.abort(id);
  close(*stream, counted_as, Clock::now());
}

int64_t AsyncEngine::abort_all(const std::string& why) {
  std::vector<TokenOutput> outputs;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, stream] : streams_) outputs.push_back({.id = id, .finish_reason = FinishReason::kAbort, .error = why});
  }
  for (const TokenOutput& output : outputs) core_.abort(output.id);
  const auto count = static_cast<int64_t>(outputs.size());
  hand_out(std::move(outputs));
  return count;
}

void AsyncEngine::drain() {
  draining_ = true;
  core_.drain();
}

void AsyncEngine::stop() {
  draining_ = true;
  core_.stop();
}

void AsyncEngine::on_failure(std::function<void(const std::string&)> handler) {
  std::lock_guard lock(mutex_);
  on_failure_ = std::move(handler);
}

int64_t AsyncEngine::num_open() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(streams_.size());
}

AsyncEngine::Mailbox& AsyncEngine::mailbox_of(EventLoop& loop) {
  for (const auto& mailbox : mailboxes_) {
    if (mailbox->loop == &loop) return *mailbox;
  }
  mailboxes_.push_back(std::make_unique<Mailbox>());
  mailboxes_.back()->loop = &loop;
  return *mailboxes_.back();
}

std::shared_ptr<AsyncEngine::Stream> AsyncEngine::remove(RequestId id) {
  std::lock_guard lock(mutex_);
  const auto it = streams_.find(id);
  if (it == streams_.end()) return nullptr;
  std::shared_ptr<Stream> stream = std::move(it->second);
  streams_.erase(it);
  return stream;
}

// Engine thread, after a step.
void AsyncEngine::deliver(std::vector<TokenOutput> outputs) {
  hand_out(std::move(outputs));
  watch(stats());
}

// Sorts outputs by loop and wakes each loop that had nothing waiting.
void AsyncEngine::hand_out(std::vector<TokenOutput> outputs) {
  const auto now = Clock::now();
  std::unordered_map<Mailbox*, std::vector<Mailbox::Delivery>> batches;
  {
    std::lock_guard lock(mutex_);
    for (TokenOutput& output : outputs) {
      const auto it = streams_.find(output.id);
      if (it == streams_.end()) continue;
      const bool last = output.finish_reason != FinishReason::kNone;
      std::shared_ptr<Stream> stream = last ? std::move(it->second) : it->second;
      if (last) streams_.erase(it);
      Mailbox* mailbox = stream->mailbox;
      batches[mailbox].push_back({std::move(stream), std::move(output), now});
    }
  }
  for (auto& [mailbox, batch] : batches) {
    bool was_empty = false;
    {
      std::lock_guard lock(mailbox->mutex);
      was_empty = mailbox->deliveries.empty();
      append(&mailbox->deliveries, std::move(batch));
    }
    if (was_empty) mailbox->loop->post([this, m = mailbox] { empty(*m); });
  }
}

// Engine thread: the tokens of the steps since the last time, and whether the engine has failed.
void AsyncEngine::watch(const EngineStats& now) {
  const int64_t num_tokens = now.prompt_tokens + now.generation_tokens;
  const int64_t num_steps = now.steps - watched_steps_;
  for (int64_t i = 0; i < num_steps; ++i) metrics_.iteration((num_tokens - watched_tokens_) / num_steps);
  watched_steps_ = now.steps;
  watched_tokens_ = num_tokens;
  if (now.healthy) return;
  std::function<void(const std::string&)> handler;
  {
    std::lock_guard lock(mutex_);
    handler = std::exchange(on_failure_, nullptr);
  }
  if (handler) handler(now.error);
}

// Loop thread: all that has come for the loop's requests, each request's outputs as one.
void AsyncEngine::empty(Mailbox& mailbox) {
  std::vector<Mailbox::Delivery> deliveries;
  {
    std::lock_guard lock(mailbox.mutex);
    deliveries.swap(mailbox.deliveries);
  }
  std::vector<std::shared_ptr<Stream>> touched;
  for (Mailbox::Delivery& d : deliveries) {
    Stream& stream = *d.stream;
    if (stream.closed) continue;
    record(stream, d.output, d.time);
    merge(&stream.pending, std::move(d.output));
    if (!std::exchange(stream.merging, true)) touched.push_back(std::move(d.stream));
  }
  for (const std::shared_ptr<Stream>& stream : touched) {
    stream->merging = false;
    if (stream->closed) continue;  // by the handler of another request
    TokenOutput output = std::exchange(stream->pending, {});
    if (output.finish_reason != FinishReason::kNone) close(*stream, output.finish_reason, stream->record.end);
    stream->on_output(std::move(output));
  }
}

void AsyncEngine::record(Stream& stream, const TokenOutput& output, Clock::time_point time) {
  RequestRecord& r = stream.record;
  if (output.started != Clock::time_point{}) {  // an abort does not know
    r.started = output.started;
    r.cached_tokens = output.num_cached_tokens;
  }
  r.end = time;
  const auto count = static_cast<int64_t>(output.token_ids.size());
  if (count == 0) return;
  if (r.generation_tokens == 0) {
    r.first_token = time;
    metrics_.first_token(std::chrono::duration<double>(time - r.arrival).count());
  } else {
    metrics_.next_tokens(count, std::chrono::duration<double>(time - r.last_token).count());
  }
  r.generation_tokens += count;
  r.last_token = time;
}

void AsyncEngine::close(Stream& stream, FinishReason reason, Clock::time_point time) {
  if (std::exchange(stream.closed, true)) return;
  stream.record.finish_reason = reason;
  stream.record.end = time;
  metrics_.request_finished(stream.record);
}

}  // namespace tutti

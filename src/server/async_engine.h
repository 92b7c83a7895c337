// Requests in, tokens out, across threads: owns the EngineCore and its thread, and carries every request's
// outputs to the event loop that asked. Outputs that a busy loop has not taken yet are merged per request, so
// a slow front end handles fewer, larger outputs instead of falling behind.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine_core.h"
#include "server/event_loop.h"
#include "server/metrics.h"

namespace tutti {

class AsyncEngine {
 public:
  enum class Admission { kAccepted, kQueueFull, kStopping, kBroken };
  // Called on the request's loop, the last time with a finish reason.
  using OnOutput = std::function<void(TokenOutput output)>;

  // `executor` outlives this object; so does `metrics`.
  AsyncEngine(const EngineConfig& config, std::vector<int32_t> eos_token_ids, Executor& executor,
              Metrics& metrics);
  ~AsyncEngine();
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  // A number for a request that is about to be submitted.
  RequestId next_id() { return ++last_id_; }
  // `n` of the API request it belongs to, for the metrics. Call on `loop`.
  Admission submit(EngineRequest request, int n, EventLoop& loop, OnOutput on_output);
  // Ends a request; no output comes any more. `counted_as` is what the metrics show: kStop when the server
  // has found a stop string. Call on the request's loop.
  void end(RequestId id, FinishReason counted_as);

  // Ends all open requests at once with `why`, whatever step the engine waits for; says how many. Any thread.
  int64_t abort_all(const std::string& why);

  // No new requests; the engine ends with the running ones.
  void drain();
  // Ends running requests too.
  void stop();
  // stop(), and waits for the engine thread: afterwards nothing is posted to a loop.
  void shutdown();
  bool draining() const { return draining_; }
  // The engine thread has returned: drained, stopped or broken and empty.
  bool ended() const { return ended_; }
  // Called once, on the engine thread, when the engine has failed.
  void on_failure(std::function<void(const std::string& message)> handler);

  // --max-queue-size: a request of more sequences is never taken.
  int64_t max_queue_size() const { return max_queue_size_; }
  EngineStats stats() const { return core_.stats(); }
  // Requests submitted and not ended.
  int64_t num_open() const;

 private:
  struct Stream;   // one request's way back
  struct Mailbox;  // outputs on their way to one loop
  void run();
  void deliver(std::vector<TokenOutput> outputs);
  void hand_out(std::vector<TokenOutput> outputs);
  void empty(Mailbox& mailbox);
  void record(Stream& stream, const TokenOutput& output, Clock::time_point time);
  void close(Stream& stream, FinishReason reason, Clock::time_point time);
  Mailbox& mailbox_of(EventLoop& loop);
  std::shared_ptr<Stream> remove(RequestId id);
  void watch(const EngineStats& now);

  Metrics& metrics_;
  const int64_t max_queue_size_;
  mutable std::mutex mutex_;
  std::unordered_map<RequestId, std::shared_ptr<Stream>> streams_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  // one a loop
  std::function<void(const std::string&)> on_failure_;
  int64_t watched_steps_ = 0;   // engine thread
  int64_t watched_tokens_ = 0;  // engine thread
  std::atomic<RequestId> last_id_{0};
  std::atomic<bool> draining_{false};
  std::atomic<bool> ended_{false};
  EngineCore core_;
  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace tutti

// A model on the ranks of one command, without a server: requests in, tokens out. Built and used on the main thread; the
// engine runs on a thread of its own.
#pragma once

#include <memory>
#include <optional>
#include <thread>

#include "apps/cluster_start.h"
#include "apps/signals.h"
#include "base/queue.h"
#include "engine/engine_core.h"

namespace tutti {

class LocalEngine {
 public:
  // Starts the ranks and waits until they have loaded. `signals` outlives it. Throws as start_cluster() does.
  LocalEngine(ServeOptions& options, const LaunchPlan& plan, ServedModel& model, Signals& signals);
  ~LocalEngine();
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  // False when a signal came while the ranks were loading: then there is no engine.
  bool started() const { return core_ != nullptr; }
  // Throws ConfigError when the queue is full (--max-queue-size).
  void submit(EngineRequest request);
  void abort(RequestId id) { core_->abort(id); }
  // The next output of any request; nothing at the deadline.
  std::optional<TokenOutput> next(Deadline deadline) { return outputs_.pop(deadline); }
  EngineStats stats() const { return core_->stats(); }
  std::shared_ptr<RankGroup> ranks() const { return cluster_.head->ranks(); }
  // Requests end, the ranks go.
  void finish(const std::string& reason);

 private:
  Cluster cluster_;
  Queue<TokenOutput> outputs_;
  std::unique_ptr<EngineCore> core_;
  std::thread thread_;
};

// The plan of a command that runs on the head only. `command` as typed, for the error.
LaunchPlan plan_of_head(const ServeOptions& options, const std::string& command);

}  // namespace tutti

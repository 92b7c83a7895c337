#include "apps/local_engine.h"

#include "apps/environment.h"
#include "base/error.h"

namespace tutti {

LocalEngine::LocalEngine(ServeOptions& options, const LaunchPlan& plan, ServedModel& model, Signals& signals)
    : cluster_(start_cluster(options, plan, model, false, [&signals] { return signals.interrupted(); })) {
  if (cluster_.executor == nullptr) return;
  core_ = std::make_unique<EngineCore>(options.engine, model.info.eos_token_ids, *cluster_.executor,
                                       [this](std::vector<TokenOutput> batch) {
                                         for (TokenOutput& output : batch) outputs_.push(std::move(output));
                                       });
  thread_ = std::thread([this] { core_->run(); });
}

LocalEngine::~LocalEngine() {
  if (core_ != nullptr) core_->stop();
  if (thread_.joinable()) thread_.join();
}

void LocalEngine::submit(EngineRequest request) {
  if (core_->add_request(std::move(request))) return;
  const EngineStats stats = core_->stats();
  if (!stats.healthy) throw CommError(stats.error);
  throw ConfigError("the queue is full: raise --max-queue-size");
}

void LocalEngine::finish(const std::string& reason) {
  core_->drain();
  thread_.join();
  cluster_.head->stop_ranks(reason, true, std::chrono::seconds(3));
}

LaunchPlan plan_of_head(const ServeOptions& options, const std::string& command) {
  LaunchPlan plan = plan_launch(options.launch, options.engine.parallel, environment);
  if (plan.role != Role::kHead) throw ConfigError(command + " runs on the head only: start `tutti worker` on the other nodes");
  return plan;
}

}  // namespace tutti

// The Executor over real ranks: a step is encoded once and sent to all of them; the answer is there when all have
// answered. Engine thread only.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "cluster/rank_group.h"
#include "engine/executor.h"

namespace tutti {

class ClusterExecutor final : public Executor {
 public:
  // Gives new ranks that have loaded and started, or nothing when they cannot be had.
  using Recover = std::function<std::shared_ptr<RankGroup>(const std::string& reason)>;

  // `ranks` have started.
  ClusterExecutor(std::shared_ptr<RankGroup> ranks, ExecutorInfo info, Recover recover = {})
      : ranks_(std::move(ranks)), info_(info), recover_(std::move(recover)) {}

  ExecutorInfo info() const override { return info_; }
  void submit(const SchedulerOutput& step) override;
  ModelRunnerOutput wait(Deadline deadline) override;
  bool ready() const override { return ranks_->output_ready(); }
  bool recover(const std::string& reason) override;

 private:
  std::shared_ptr<RankGroup> ranks_;
  const ExecutorInfo info_;
  const Recover recover_;
  std::deque<RankGroup::Awaited> in_flight_;  // oldest first
};

}  // namespace tutti

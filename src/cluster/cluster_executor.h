// The Executor over real ranks: a step is encoded once and sent to all of them; the answer is there when all have
// answered. Engine thread only.
#pragma once

#include <deque>

#include "cluster/rank_group.h"
#include "engine/executor.h"

namespace tutti {

class ClusterExecutor final : public Executor {
 public:
  // `ranks` outlives the executor and has started.
  ClusterExecutor(RankGroup& ranks, ExecutorInfo info) : ranks_(ranks), info_(info) {}

  ExecutorInfo info() const override { return info_; }
  void submit(const SchedulerOutput& step) override;
  ModelRunnerOutput wait(Deadline deadline) override;
  bool ready() const override { return ranks_.output_ready(); }

 private:
  RankGroup& ranks_;
  const ExecutorInfo info_;
  std::deque<int64_t> in_flight_;  // step numbers, oldest first
};

}  // namespace tutti

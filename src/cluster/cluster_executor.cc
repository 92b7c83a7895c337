#include "cluster/cluster_executor.h"

#include "base/check.h"
#include "base/error.h"
#include "protocol/wire.h"

namespace tutti {

void ClusterExecutor::submit(const SchedulerOutput& step) {
  ranks_->send_all(FrameType::kStep, wire::encode(step));
  RankGroup::Awaited& awaited = in_flight_.emplace_back();
  awaited.step = step.step;
  awaited.rows.reserve(step.scheduled.size());
  for (const ScheduledRequest& row : step.scheduled) awaited.rows.push_back({row.id, row.samples});
}

ModelRunnerOutput ClusterExecutor::wait(Deadline deadline) {
  if (in_flight_.empty()) {
    const auto failure = ranks_->failure();
    CHECK(failure.has_value());  // ready() said so
    throw CommError(failure->message, failure->rank);
  }
  ModelRunnerOutput output = ranks_->wait_output(in_flight_.front(), deadline);
  in_flight_.pop_front();
  return output;
}

bool ClusterExecutor::recover(const std::string& reason) {
  if (!recover_) return false;
  auto ranks = recover_(reason);
  if (ranks == nullptr) return false;
  ranks_ = std::move(ranks);
  in_flight_.clear();
  return true;
}

}  // namespace tutti

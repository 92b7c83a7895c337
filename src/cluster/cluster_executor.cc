#include "cluster/cluster_executor.h"

#include "base/check.h"
#include "base/error.h"
#include "protocol/wire.h"

namespace tutti {

void ClusterExecutor::submit(const SchedulerOutput& step) {
  ranks_->send_all(FrameType::kStep, wire::encode(step));
  in_flight_.push_back(step.step);
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

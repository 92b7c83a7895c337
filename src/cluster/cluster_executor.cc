#include "cluster/cluster_executor.h"

#include "base/check.h"
#include "protocol/wire.h"

namespace tutti {

void ClusterExecutor::submit(const SchedulerOutput& step) {
  ranks_.send_all(FrameType::kStep, wire::encode(step));
  in_flight_.push_back(step.step);
}

ModelRunnerOutput ClusterExecutor::wait(Deadline deadline) {
  CHECK(!in_flight_.empty());
  ModelRunnerOutput output = ranks_.wait_output(in_flight_.front(), deadline);
  in_flight_.pop_front();
  return output;
}

}  // namespace tutti

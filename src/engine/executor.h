// "Run this step": the engine's only view of the ranks. One implementation for one rank and for forty
// (cluster/cluster_executor), a fake one in tests and a simulated one in the planner. Called by the engine thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/deadline.h"
#include "protocol/step.h"

namespace tutti {

// What the ranks can hold, known after they have loaded.
struct ExecutorInfo {
  int64_t num_kv_blocks = 0;   // the smallest rank's
  int pipeline_stages = 1;
  int max_steps_in_flight = 2;  // one computing in each pipeline stage, and one sent ahead
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual ExecutorInfo info() const = 0;
  // Sends a step to all ranks and returns at once. Throws CommError when the cluster is lost.
  virtual void submit(const SchedulerOutput& step) = 0;
  // The answer to the oldest unanswered step: a token of every row that samples, in the order of its rows. Throws CommError
  // naming the rank that is late or lost, or that answered something else.
  virtual ModelRunnerOutput wait(Deadline deadline) = 0;
  // True when an answer is there, or the cluster is lost: wait() will not block.
  virtual bool ready() const = 0;
  // After a CommError: tries to get the ranks back, empty, and takes its time. True: they wait for step 1 of a new
  // epoch. False: they are lost for good.
  virtual bool recover(const std::string& reason) {
    (void)reason;
    return false;
  }
};

}  // namespace tutti

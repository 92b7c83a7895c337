// From flags to ranks that are ready: the part that `serve` and `generate` share, with the lines that people watch.
// Main thread.
#pragma once

#include <functional>
#include <memory>

#include "apps/serve_options.h"
#include "apps/served_model.h"
#include "cluster/cluster_executor.h"
#include "cluster/head.h"

namespace tutti {

struct Cluster {
  std::unique_ptr<Head> head;
  std::unique_ptr<ClusterExecutor> executor;
  double waited_s = 0;  // for other nodes
};

// Admits other nodes when ranks are missing, starts all ranks, waits until they have loaded, and settles what depends on them
// in `options` and `model` (max_model_len). A cluster without an executor was interrupted. Throws JoinError, ConfigError,
// CommError. `control_port`: open it even when this node has all ranks, for `tutti status`. `interrupted` is also asked later,
// on the engine thread, while lost ranks are waited for.
Cluster start_cluster(ServeOptions& options, const LaunchPlan& plan, ServedModel& model, bool control_port,
                      const std::function<bool()>& interrupted);

// Ranks of the head's node.
int local_rank_count(const LaunchPlan& plan, const ParallelConfig& parallel);

}  // namespace tutti

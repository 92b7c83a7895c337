// The communicators of one rank: with all ranks, with those that share its layers (tensor parallel)
// and with those that hold the other layers (pipeline parallel). Owned by the worker, used on its
// thread.
#pragma once

#include <memory>
#include <vector>

#include "comm/comm_factory.h"
#include "comm/communicator.h"
#include "comm/device_factory.h"

namespace tutti {

struct ParallelGroups {
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> tp;
  std::unique_ptr<Communicator> pp;
};

// `world` describes all ranks; `tp_ranks` and `pp_ranks` are the ranks of this rank's two groups,
// ascending. Every rank of the world calls it.
ParallelGroups make_parallel_groups(const CommOptions& world, const std::vector<int>& tp_ranks,
                                    const std::vector<int>& pp_ranks, Store& store);

// The groups of this rank's GPU: tp and pp only, for tensors in its memory. `device` has everything but the group.
ParallelGroups make_device_groups(const CommOptions& world, const std::vector<int>& tp_ranks,
                                  const std::vector<int>& pp_ranks, const DeviceCommOptions& device, Store& store);

}  // namespace tutti

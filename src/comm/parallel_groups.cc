#include "comm/parallel_groups.h"

#include "comm/nccl/nccl_environment.h"

namespace tutti {

ParallelGroups make_parallel_groups(const CommOptions& world, const std::vector<int>& tp_ranks,
                                    const std::vector<int>& pp_ranks, Store& store) {
  ParallelGroups groups;
  groups.world = make_communicator(world, store);
  groups.tp = make_communicator(subgroup_options(world, "tp", tp_ranks), store);
  groups.pp = make_communicator(subgroup_options(world, "pp", pp_ranks), store);
  return groups;
}

ParallelGroups make_device_groups(const CommOptions& world, const std::vector<int>& tp_ranks,
                                  const std::vector<int>& pp_ranks, const DeviceCommOptions& device, Store& store) {
  CommOptions all = world;
  all.group_name += "/gpus";
  all.measure_algorithms = false;
  const auto everybody = make_communicator(all, store);
  DeviceCommOptions options = device;
  if (options.path == DeviceCommOptions::Path::kAuto && nccl::p2p_is_off()) {
    options.path = DeviceCommOptions::Path::kNccl;
    options.why_nccl = "NCCL_P2P_DISABLE=1";
  }
  nccl::prepare(*everybody, all);  // for all groups at once: the first may lie inside a node
  nccl::warn_of_sockets(all);
  ParallelGroups groups;
  options.group = subgroup_options(world, "tp", tp_ranks);
  groups.tp = make_device_communicator(options, store);
  options.group = subgroup_options(world, "pp", pp_ranks);
  groups.pp = make_device_communicator(options, store);
  return groups;
}

}  // namespace tutti

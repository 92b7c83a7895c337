#include "comm/parallel_groups.h"

namespace tutti {

ParallelGroups make_parallel_groups(const CommOptions& world, const std::vector<int>& tp_ranks,
                                    const std::vector<int>& pp_ranks, Store& store) {
  ParallelGroups groups;
  groups.world = make_communicator(world, store);
  groups.tp = make_communicator(subgroup_options(world, "tp", tp_ranks), store);
  groups.pp = make_communicator(subgroup_options(world, "pp", pp_ranks), store);
  return groups;
}

}  // namespace tutti

// The body of the conformance test: every collective with values whose result has a closed form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tutti {

struct Workload {
  std::vector<int64_t> counts;  // elements of each reduction, and bytes of each transfer
  std::vector<DType> dtypes;
};

// Throws std::runtime_error that names the first wrong element. Returns a digest of all results
// that must be the same on every rank.
std::string check_collectives(Communicator& comm, const Workload& workload);

// Sums numbers that do not add up exactly. The digest of the sums must be the same on every rank.
// `in_rank_order`: the sums must also be those of adding rank by rank (a hierarchy adds node by
// node).
std::string check_rounding(Communicator& comm, bool in_rank_order);

}  // namespace tutti

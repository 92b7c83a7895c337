// Which rank the others wait for while a cluster starts. Each rank tells when it has ended its part of a phase, in seconds
// of its own clock; a phase is over when all have. Pure functions of what the ranks have told, main thread.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace tutti {

// "weights: waiting for rank 1, node2 (1 of 2 ranks are done)". `reports`: the latest of each rank, null before its first,
// {"phases": [["process", 0.1], ["weights", 2.4]], ...}; `places`: "node2" of each rank. Where no rank is
// behind, which phase was the last to end.
std::string awaited_rank(const std::vector<Json>& reports, const std::vector<std::string>& places);

// Of each phase how long the slowest rank took, from when all had ended the phase before, and who that was:
// "process 0.3 s (rank 0, node1), weights 2.1 s (rank 1, node2)". Of phases that all ranks have ended.
std::string slowest_ranks(const std::vector<Json>& reports, const std::vector<std::string>& places);

}  // namespace tutti

// The words that say where the time of steps went, the same for `generate`, `complete` and `status`. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// Sums over the steps in question.
struct StepTimes {
  double compute = 0;  // seconds, as the three below
  double comm = 0;     // in collectives of all groups
  double pp_comm = 0;  // of that, between pipeline stages
  double host = 0;     // scheduling and handing out
  double step = 0;     // of all steps, by the clock
  double bubble = 0;   // of that, what a rank waited for another stage or a step, on average
  int64_t comm_bytes = 0;
  int64_t pp_comm_bytes = 0;
  int slowest_rank = -1;  // which computed longest; -1 = not known
};

// "compute 62%, communication 20% (5% between stages), scheduling 1%", of `whole` seconds.
std::string describe_shares(const StepTimes& times, double whole);
// "; 1.2 MB between ranks (0.2 MB between stages), bubble 12%, slowest: rank 1"; "" when nothing crossed.
std::string describe_traffic(const StepTimes& times);

}  // namespace tutti

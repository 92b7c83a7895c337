// Which way of summing is faster at which size, measured on the ranks and links at hand when a
// group starts. All ways but NCCL's give the same bits; all ranks choose from the same numbers, so
// they choose the same.
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti {

enum class SumWay : uint8_t {
  kOneShot,          // every rank gets all parts and sums everything: one exchange
  kOneShotStreamed,  // the same with parts written past the caches, for cores that share none
  kTwoShot,          // every rank sums its slice and passes it on: two exchanges of less
  kLowLatency,       // between GPUs: one shot with flags inside the data
  kNccl,             // between GPUs: the library's
};

class AlgorithmTable {
 public:
  // Before anything is measured: one shot below `one_shot_bytes`.
  explicit AlgorithmTable(size_t one_shot_bytes);

  SumWay choose(size_t bytes) const { return ways_[static_cast<size_t>(std::bit_width(bytes))]; }
  // From the power of two that is at most `bytes` on.
  void set_from(size_t bytes, SumWay way);
  std::string text() const;  // "one-shot, two-shot from 65536 bytes"

 private:
  std::array<SumWay, 65> ways_;  // by bit width of the message's bytes
};

// The measurement's ways to the transport: run or time.
struct SumTrial {
  std::vector<SumWay> ways;                           // those that the transport has, that for long messages last
  std::function<void(SumWay way, size_t bytes)> run;  // one all-reduce
  std::function<double(SumWay way, size_t bytes)> time;  // or, with a clock of the transport's own: the seconds of one
  std::function<double(double seconds)> slowest;      // over all ranks, the same on all
  size_t growth = 4;                                  // from one size to the next
};
// Tries sizes from 1 KiB up to `largest_bytes`. A way is chosen over those before it in `ways` when it is clearly faster.
// Ends when `budget` is spent, as on a slow link: larger messages then go the last way. Every rank
// calls it at the same point.
void measure_algorithms(AlgorithmTable& table, const SumTrial& trial, size_t largest_bytes,
                        std::chrono::nanoseconds budget);

}  // namespace tutti

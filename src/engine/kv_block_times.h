// How long KV blocks live in the cache, of a sample of them, for --kv-cache-metrics. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "base/deadline.h"

namespace tutti {

struct TimeHistogram {
  static constexpr std::array<double, 21> kBounds = {.001, .002, .005, .01, .02, .05, .1,  .2,  .5,   1,   2,
                                                     5,    10,   20,   30,  60,  120, 300, 600, 1200, 1800};
  std::array<int64_t, kBounds.size() + 1> counts{};  // up to each bound, and above the last
  double sum = 0.0;                                  // seconds

  void observe(double seconds);
};

struct KVBlockHistograms {
  TimeHistogram lifetime;           // from a block's allocation to its next use for something else
  TimeHistogram idle_before_evict;  // from the last time that it was given to a request, until then
  TimeHistogram reuse_gap;          // between two times that it was given to requests
};

class KVBlockTimes {
 public:
  // `sample`: the share of allocations that are followed, 0 = none.
  explicit KVBlockTimes(double sample) : sample_(sample) {}

  void allocated(int32_t block) {
    if (sample_ > 0.0) allocated_at(block, Clock::now());
  }
  // A prefix that it holds was found.
  void reused(int32_t block) {
    if (!followed_.empty()) reused_at(block, Clock::now());
  }
  void allocated_at(int32_t block, Clock::time_point now);
  void reused_at(int32_t block, Clock::time_point now);
  // The blocks hold nothing any more.
  void forget() { followed_.clear(); }
  const KVBlockHistograms& histograms() const { return histograms_; }

 private:
  struct Followed {
    Clock::time_point allocated;
    Clock::time_point given;
  };
  double sample_;
  double next_ = 0.0;  // reaches 1 with every allocation that is followed
  std::unordered_map<int32_t, Followed> followed_;
  KVBlockHistograms histograms_;
};

}  // namespace tutti

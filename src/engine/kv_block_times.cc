#include "engine/kv_block_times.h"

#include <algorithm>

namespace tutti {
namespace {

double seconds_between(Clock::time_point begin, Clock::time_point end) { return std::chrono::duration<double>(end - begin).count(); }

}  // namespace

void TimeHistogram::observe(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts[static_cast<size_t>(bound - kBounds.begin())];
  sum += seconds;
}

void KVBlockTimes::allocated_at(int32_t block, Clock::time_point now) {
  if (const auto it = followed_.find(block); it != followed_.end()) {
    histograms_.lifetime.observe(seconds_between(it->second.allocated, now));
    histograms_.idle_before_evict.observe(seconds_between(it->second.given, now));
    followed_.erase(it);
  }
  next_ += sample_;
  if (next_ < 1.0) return;
  next_ -= 1.0;
  followed_.emplace(block, Followed{now, now});
}

void KVBlockTimes::reused_at(int32_t block, Clock::time_point now) {
  const auto it = followed_.find(block);
  if (it == followed_.end()) return;
  histograms_.reuse_gap.observe(seconds_between(it->second.given, now));
  it->second.given = now;
}

}  // namespace tutti

#include "runtime/step_clock.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr double kSlowestRate = 5e9;  // multiply-adds a second that any machine reaches
constexpr double kPatience = 20.0;    // a rank is late when it took that many times longer
constexpr double kLeast = 0.5;        // of the ceiling: below this the system's hiccups look like failures
constexpr double kForget = 0.1;

}  // namespace

StepClock::StepClock(double weights_of_token, double ceiling_s) : weights_of_token_(weights_of_token), ceiling_s_(ceiling_s) {}

void StepClock::record(int64_t rows, std::chrono::nanoseconds duration) {
  double& kept = seconds_[bucket(rows)];
  const double now = std::chrono::duration<double>(duration).count();
  kept = std::max(now, kept + kForget * (now - kept));
}

// A step of more rows takes at most as much more; one of fewer rows does not take longer.
StepClock::Expected StepClock::expected(int64_t rows) const {
  const size_t own = bucket(rows);
  if (seconds_[own] > 0) return {seconds_[own], true};
  for (size_t b = own; b-- > 0;) {
    if (seconds_[b] > 0) return {seconds_[b] * static_cast<double>(uint64_t{1} << (own - b + 1)), true};
  }
  for (size_t b = own + 1; b < seconds_.size(); ++b) {
    if (seconds_[b] > 0) return {seconds_[b], true};
  }
  return {weights_of_token_ * static_cast<double>(rows) / kSlowestRate, false};
}

std::chrono::nanoseconds StepClock::timeout(int64_t rows) const {
  const Expected e = expected(rows);
  const double late = e.measured ? std::clamp(kPatience * e.seconds, kLeast * ceiling_s_, ceiling_s_) : ceiling_s_;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(e.seconds + late));
}

std::string StepClock::describe(int64_t rows) const {
  const Expected e = expected(rows);
  const std::string time = e.seconds < 1 ? fmt::format("{:.0f} ms", e.seconds * 1e3) : fmt::format("{:.1f} s", e.seconds);
  return e.measured ? time : "at most " + time;
}

}  // namespace tutti

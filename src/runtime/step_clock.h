// How long a step should take, from those before it, and how long ranks therefore wait for each other. Worker thread
// only; every rank keeps its own, as a deadline need not be the same on all.
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <string>

namespace tutti {

class StepClock {
 public:
  // `weights_of_token`: multiply-adds of one row, for steps unlike any seen. `ceiling_s`: the most that a collective may
  // be later than the step should have taken.
  StepClock(double weights_of_token, double ceiling_s);

  // A step of `rows` rows took this long.
  void record(int64_t rows, std::chrono::nanoseconds duration);
  // Deadline of one collective in a step of `rows` rows: what the step should take, and 20 times that again, but no less
  // than half of the ceiling and no more than the ceiling.
  std::chrono::nanoseconds timeout(int64_t rows) const;
  std::string describe(int64_t rows) const;  // "32 ms", "at most 110 s" when there is nothing to go by

 private:
  struct Expected {
    double seconds;
    bool measured;
  };
  Expected expected(int64_t rows) const;
  static size_t bucket(int64_t rows) { return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows))); }

  const double weights_of_token_;
  const double ceiling_s_;
  // Of steps by the bit width of their rows: the longest of late, which a lone slow step leaves again; 0 = none yet.
  std::array<double, 65> seconds_{};
};

}  // namespace tutti

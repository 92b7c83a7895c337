// Every wait in the program takes a Deadline: an instant on the steady clock and, in the errors, a message.
#pragma once

#include <chrono>

namespace tutti {

using Clock = std::chrono::steady_clock;

class Deadline {
 public:
  static Deadline after(std::chrono::nanoseconds duration) { return Deadline(Clock::now() + duration); }
  static Deadline never() { return Deadline(Clock::time_point::max()); }  // only where a person ends the wait

  explicit Deadline(Clock::time_point instant) : instant_(instant) {}

  bool passed() const { return Clock::now() >= instant_; }
  Clock::time_point instant() const { return instant_; }
  // Time left, never negative.
  std::chrono::nanoseconds left() const {
    if (instant_ == Clock::time_point::max()) return std::chrono::hours(24 * 365);
    const auto now = Clock::now();
    return now >= instant_ ? std::chrono::nanoseconds(0) : instant_ - now;
  }

 private:
  Clock::time_point instant_;
};

}  // namespace tutti

// SIGINT and SIGTERM as values: blocked in every thread and read from a descriptor. Make one on the main thread before
// any other thread starts, so that all inherit the mask.
#pragma once

#include <atomic>
#include <optional>

#include "base/deadline.h"
#include "base/fd.h"

namespace tutti {

class Signals {
 public:
  Signals();

  // The next signal, or nothing at the deadline. Any thread.
  std::optional<int> wait(Deadline deadline);
  // How many signals have come so far: for loops that only ask whether to stop.
  int count();
  bool interrupted() { return count() > 0; }

 private:
  Fd fd_;
  std::atomic<int> count_{0};
};

}  // namespace tutti

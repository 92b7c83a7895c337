// The line of throughput that vLLM's users grep for, every 10 s while requests run. Has its own thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/async_engine.h"

namespace tutti {

class StatsLog {
 public:
  explicit StatsLog(const AsyncEngine& engine);
  ~StatsLog();

 private:
  void run();

  const AsyncEngine& engine_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace tutti

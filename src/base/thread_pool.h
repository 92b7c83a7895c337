// The threads that compute one rank's kernels. One caller at a time (the rank's worker thread), which computes as
// thread 0. Threads spin for a short while after a job and then sleep, so that consecutive kernels start within a
// microsecond and an idle rank uses no processor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace tutti {

class ThreadPool {
 public:
  // `num_threads` >= 1, the caller included. `spin_us`: how long a thread polls for the next job before it sleeps; use
  // 0 when the host has more ranks than cores. `first_core` >= 0 pins thread i to core first_core + i.
  explicit ThreadPool(int num_threads, int spin_us = 50, int first_core = -1);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return num_threads_; }

  // Runs job(thread) on all threads, 0 <= thread < size(), and returns when all have returned. `job` must not throw.
  void run(const std::function<void(int thread)>& job);

  // Splits [0, count) into chunks of `grain` that the threads take in turn: job(begin, end). For even work prefer a
  // static split inside run(): it gives each thread the same rows every time, hence the same memory node.
  void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t begin, int64_t end)>& job);

 private:
  struct Shared;
  int num_threads_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace tutti

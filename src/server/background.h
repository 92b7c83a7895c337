// A thread for what would hold up an event loop: parsing and tokenising megabytes of prompt. Tasks must not
// throw.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "base/queue.h"

namespace tutti {

class Background {
 public:
  Background() : thread_([this] { run(); }) {}
  ~Background() {
    tasks_.close();
    thread_.join();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // False when too much is waiting already. `bytes`: of the request that the task holds.
  bool post(size_t bytes, std::function<void()> task) {
    if (waiting_bytes_ + bytes > kMaxWaitingBytes) return false;
    waiting_bytes_ += bytes;
    return tasks_.push({bytes, std::move(task)});
  }

 private:
  struct Task {
    size_t bytes;
    std::function<void()> run;
  };
  static constexpr size_t kMaxWaitingBytes = 256 << 20;

  void run() {
    while (auto task = tasks_.pop(Deadline::never())) {
      task->run();
      waiting_bytes_ -= task->bytes;
    }
  }

  std::atomic<size_t> waiting_bytes_{0};  // of tasks that have not ended
  Queue<Task> tasks_;
  std::thread thread_;
};

}  // namespace tutti

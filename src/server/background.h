// A thread for what would hold up an event loop: parsing and tokenising megabytes of prompt. Tasks must not
// throw.
#pragma once

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

  // False when too much is waiting already: every task holds a large request.
  bool post(std::function<void()> task) {
    return tasks_.size() < kMaxWaiting && tasks_.push(std::move(task));
  }

 private:
  static constexpr size_t kMaxWaiting = 32;

  void run() {
    while (auto task = tasks_.pop(Deadline::never())) (*task)();
  }

  Queue<std::function<void()>> tasks_;
  std::thread thread_;
};

}  // namespace tutti

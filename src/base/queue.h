// An unbounded queue between threads: any number of producers and consumers.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "base/deadline.h"

namespace tutti {

template <typename T>
class Queue {
 public:
  // False when the queue is closed (the item is dropped).
  bool push(T item) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
    return true;
  }

  // Waits for an item. Nothing when the deadline passed, or when the queue is closed and empty.
  std::optional<T> pop(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const auto has_something = [this] { return !items_.empty() || closed_; };
    if (deadline.instant() == Clock::time_point::max()) {
      ready_.wait(lock, has_something);
    } else {
      ready_.wait_until(lock, deadline.instant(), has_something);
    }
    return take();
  }

  std::optional<T> try_pop() {
    std::lock_guard lock(mutex_);
    return take();
  }

  // Wakes all who wait. What is inside can still be taken.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_;
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> take() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace tutti

#include "comm/store.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tutti {

void InMemoryStore::set(const std::string& key, const std::string& value) {
  {
    std::lock_guard lock(mutex_);
    values_[key] = value;
  }
  changed_.notify_all();
}

std::string InMemoryStore::get(const std::string& key, Deadline deadline) {
  return wait(values_, key, deadline);
}

void InMemoryStore::share(const std::string& key, std::shared_ptr<void> object) {
  {
    std::lock_guard lock(mutex_);
    objects_[key] = std::move(object);
  }
  changed_.notify_all();
}

std::shared_ptr<void> InMemoryStore::shared(const std::string& key, Deadline deadline) {
  return wait(objects_, key, deadline);
}

template <typename Value>
Value InMemoryStore::wait(const std::map<std::string, Value>& values, const std::string& key,
                          Deadline deadline) {
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!closed_.empty()) throw CommError(fmt::format("rendezvous closed: {}", closed_));
    if (const auto found = values.find(key); found != values.end()) return found->second;
    const auto left = deadline.left();
    if (left.count() == 0) {
      const double waited = std::chrono::duration<double>(Clock::now() - start).count();
      throw CommError(fmt::format(
          "rendezvous: '{}' was not set within {:.1f} s; its rank has not come", key, waited));
    }
    changed_.wait_for(lock, left);
  }
}

void InMemoryStore::close(const std::string& reason) {
  {
    std::lock_guard lock(mutex_);
    closed_ = reason;
  }
  changed_.notify_all();
}

}  // namespace tutti

// Rendezvous: a small map that all ranks of a cluster can write and wait on, used to set up
// communicators (addresses, shared-memory names, NCCL ids) and for nothing else. Thread-safe.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/deadline.h"

namespace tutti {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits until `key` is set. Throws CommError naming the key and the time waited.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
};

// For ranks that are threads of one process, and behind the head's network store.
class InMemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  // The same for an object that the threads of this process share; kept until the store is gone.
  void share(const std::string& key, std::shared_ptr<void> object);
  std::shared_ptr<void> shared(const std::string& key, Deadline deadline);
  // Ends all waits, present and future, with a CommError that says `reason`.
  void close(const std::string& reason);

 private:
  template <typename Value>
  Value wait(const std::map<std::string, Value>& values, const std::string& key, Deadline deadline);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::shared_ptr<void>> objects_;
  std::string closed_;
};

}  // namespace tutti

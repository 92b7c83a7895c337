// Rendezvous: a small map that all ranks of a cluster can write and wait on, used to set up communicators (addresses,
// shared-memory names, NCCL ids) and for nothing else. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <condition_variable>
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
  // Ends all waits, present and future, with a CommError that says `reason`.
  void close(const std::string& reason);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::string closed_;
};

}  // namespace tutti

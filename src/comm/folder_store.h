// A rendezvous in a folder that all ranks see: one file a key. For tests and benchmarks that start
// their own processes; a cluster uses the head's store. Thread-safe.
#pragma once

#include <string>

#include "comm/store.h"

namespace tutti {

class FolderStore : public Store {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, Deadline deadline) override;

 private:
  std::string path_of(const std::string& key) const;

  const std::string folder_;
};

}  // namespace tutti

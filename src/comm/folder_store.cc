#include "comm/folder_store.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/file.h"

namespace tutti {

std::string FolderStore::path_of(const std::string& key) const {
  std::string name = key;
  std::replace(name.begin(), name.end(), '/', '+');
  return folder_ + "/" + name;
}

void FolderStore::set(const std::string& key, const std::string& value) {
  write_file(path_of(key), value);
}

std::string FolderStore::get(const std::string& key, Deadline deadline) {
  const std::string path = path_of(key);
  while (!file_exists(path)) {
    if (deadline.passed())
      throw CommError("rendezvous: no '" + path + "' within the deadline; its rank has not come");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return read_file(path);
}

}  // namespace tutti

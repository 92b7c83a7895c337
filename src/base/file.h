// Whole-file reads, and read-only maps of model files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tutti {

// The whole file, 1 GiB at most. Throws IoError naming the path and the system's reason.
std::string read_file(const std::string& path);

// Writes a file as a whole (temporary name, then rename) with the given mode. Throws IoError.
void write_file(const std::string& path, std::string_view contents, unsigned mode = 0644);

bool file_exists(const std::string& path);

// ${TUTTI_HOME:-~/.local/state/tutti}, created with mode 0700 when missing: for what one run leaves to the next. Throws
// IoError.
std::string state_folder();

// A read-only, shared map of a file. Thread-safe once built; unmapped with the last owner.
class MappedFile {
 public:
  // Throws IoError naming the path and the system's reason.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Tells the kernel that the pages that lie wholly inside [offset, offset + length) are not needed by this process
  // any more, so that they no longer count as its memory.
  void release(size_t offset, size_t length) const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const std::byte* data_;
  size_t size_;
};

}  // namespace tutti

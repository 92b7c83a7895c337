#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace tutti {
namespace {

constexpr off_t kMostBytes = off_t{1} << 30;  // of a file that is read whole: no configuration or tokenizer comes near

[[noreturn]] void fail(const std::string& doing, const std::string& path) {
  throw IoError("cannot " + doing + " " + path + ": " + std::strerror(errno));
}

// Closes a descriptor at the end of a scope.
struct FdCloser {
  int fd;
  ~FdCloser() { ::close(fd); }
};

int open_for_reading(const std::string& path, struct stat* info) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // or a pipe without a writer is waited for
  if (fd < 0) fail("open", path);
  if (::fstat(fd, info) != 0) {
    ::close(fd);
    fail("read", path);
  }
  if (!S_ISREG(info->st_mode)) {
    ::close(fd);
    throw IoError("cannot read " + path + ": not a regular file");
  }
  return fd;
}

}  // namespace

std::string read_file(const std::string& path) {
  struct stat info{};
  const int fd = open_for_reading(path, &info);
  FdCloser closer{fd};
  if (info.st_size > kMostBytes) {
    throw IoError("cannot read " + path + ": it has " + std::to_string(info.st_size) + " bytes, at most " + std::to_string(kMostBytes) + " are taken");
  }
  std::string contents(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t n = ::read(fd, contents.data() + done, contents.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("read", path);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  contents.resize(done);
  return contents;
}

void write_file(const std::string& path, std::string_view contents, unsigned mode) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) fail("create", temporary);
  FdCloser closer{fd};
  const auto give_up = [&](const char* doing, const std::string& where) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    errno = reason;
    fail(doing, where);
  };
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t n = ::write(fd, contents.data() + done, contents.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) give_up("write", temporary);
    done += static_cast<size_t>(n);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) give_up("rename to", path);
}

bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::string state_folder() {
  std::string folder;
  if (const char* home = std::getenv("TUTTI_HOME"); home != nullptr && *home != '\0') {
    folder = home;
  } else if (const char* user = std::getenv("HOME"); user != nullptr && *user != '\0') {
    folder = std::string(user) + "/.local/state/tutti";
  } else {
    throw ConfigError("neither TUTTI_HOME nor HOME is set: set TUTTI_HOME to a folder for what is kept");
  }
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) ::chmod(folder.c_str(), 0700);
  if (error) throw IoError("cannot create " + folder + ": " + error.message() + ". Set TUTTI_HOME to a folder for what is kept");
  return folder;
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  struct stat info{};
  const int fd = open_for_reading(path, &info);
  FdCloser closer{fd};
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) throw IoError("cannot map " + path + ": the file is empty");
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) fail("map", path);
  return std::shared_ptr<const MappedFile>(new MappedFile(path, static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(data_), size_); }

void MappedFile::release(size_t offset, size_t length) const {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = std::min(offset + length, size_) / page * page;
  if (end > begin) ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace tutti

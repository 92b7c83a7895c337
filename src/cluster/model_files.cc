#include "cluster/model_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>

#include "base/error.h"
#include "base/sha256.h"
#include "cluster/units.h"
#include "base/fd.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 64 << 10;

[[noreturn]] void fail(const std::string& path) {
  throw IoError("cannot read the model file " + path + ": " + std::strerror(errno));
}

ModelFile examine(const fs::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!file || ::fstat(file.get(), &info) != 0) fail(path);
  const int64_t size = info.st_size;
  // First, middle and last block; a small file as a whole.
  std::vector<std::pair<int64_t, int64_t>> parts;
  if (size <= 3 * kBlock) {
    parts = {{0, size}};
  } else {
    parts = {{0, kBlock}, {(size - kBlock) / 2, kBlock}, {size - kBlock, kBlock}};
  }
  std::string bytes;
  for (const auto& [offset, length] : parts) {
    const size_t before = bytes.size();
    bytes.resize(before + static_cast<size_t>(length));
    const ssize_t n = ::pread(file.get(), bytes.data() + before, static_cast<size_t>(length), offset);
    if (n < 0) fail(path);
    if (n != length) throw IoError("the model file " + path.string() + " was cut while it was read");
  }
  return {path.filename(), size, to_hex(sha256(std::as_bytes(std::span(bytes)))).substr(0, 16)};
}

bool changes_answers(const fs::path& path) {
  static constexpr std::array kExtensions = {".safetensors", ".gguf", ".json", ".model", ".jinja", ".tiktoken", ".txt"};
  const std::string extension = path.extension();
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

// "model-00001-of-00003.gguf": all parts beside it; any other file alone.
std::vector<fs::path> parts_of(const fs::path& file) {
  const std::string name = file.filename();
  const size_t of = name.rfind("-of-");
  if (of == std::string::npos || of < 6) return {file};
  const std::string stem = name.substr(0, of - 5);
  const std::string tail = name.substr(of);
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(fs::absolute(file).parent_path())) {
    const std::string other = entry.path().filename();
    if (other.starts_with(stem) && other.ends_with(tail) && other.size() == name.size()) parts.push_back(entry.path());
  }
  return parts;
}

}  // namespace

std::vector<ModelFile> list_model_files(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> paths;
  if (fs::is_directory(path, error)) {
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (entry.is_regular_file() && changes_answers(entry.path())) paths.push_back(entry.path());
    }
    if (error) throw IoError("cannot list the model folder " + path + ": " + error.message());
  } else {
    if (!fs::exists(path, error)) throw IoError("no model at " + path);
    paths = parts_of(path);
  }
  std::vector<ModelFile> files;
  for (const fs::path& file : paths) files.push_back(examine(file));
  std::sort(files.begin(), files.end(), [](const ModelFile& a, const ModelFile& b) { return a.name < b.name; });
  return files;
}

int64_t total_size(const std::vector<ModelFile>& files) {
  int64_t total = 0;
  for (const ModelFile& file : files) total += file.size;
  return total;
}

std::string describe(const std::vector<ModelFile>& files) {
  return fmt::format("{}, {}", files.size(), format_bytes(static_cast<double>(total_size(files))));
}

std::optional<std::pair<std::string, std::string>> compare_model_files(const std::vector<ModelFile>& head,
                                                                       const std::vector<ModelFile>& node) {
  if (head == node) return std::nullopt;
  // A file is known by another name when the model is one file: contents count, not what it is called.
  if (head.size() == 1 && node.size() == 1 && head[0].size == node[0].size && head[0].hash == node[0].hash) {
    return std::nullopt;
  }
  std::map<std::string, const ModelFile*> theirs;
  for (const ModelFile& file : node) theirs[file.name] = &file;
  for (const ModelFile& file : head) {
    const auto found = theirs.find(file.name);
    if (found == theirs.end()) return {{describe(head), fmt::format("{}: {} is missing", node.size(), file.name)}};
    if (found->second->size != file.size) {
      return {{fmt::format("{}: {} bytes", file.name, group_digits(file.size)), group_digits(found->second->size) + " bytes"}};
    }
    if (found->second->hash != file.hash) {
      return {{fmt::format("{}: {}", file.name, file.hash), fmt::format("{} (other contents)", found->second->hash)}};
    }
    theirs.erase(found);
  }
  return {{describe(head), fmt::format("{}: {} is too many", node.size(), theirs.begin()->first)}};
}

}  // namespace tutti

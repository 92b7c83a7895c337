#include "apps/model_path.h"

#include <filesystem>
#include <vector>

#include "apps/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/nearest_name.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

fs::path cache_folder() {
  if (const std::string hub = environment("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return fs::path(environment("HOME")) / ".cache/huggingface/hub";
}

// The cache keeps "owner/name" as models--owner--name.
std::string with_dashes(std::string name) {
  const size_t slash = name.find('/');
  if (slash != std::string::npos) name.replace(slash, 1, "--");
  return "models--" + name;
}

std::string with_slash(std::string folder) {
  folder.erase(0, std::string("models--").size());
  const size_t dashes = folder.find("--");
  if (dashes != std::string::npos) folder.replace(dashes, 2, "/");
  return folder;
}

std::vector<std::string> cached_models() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(cache_folder(), error)) {
    const std::string folder = entry.path().filename();
    if (folder.starts_with("models--")) names.push_back(with_slash(folder));
  }
  return names;
}

// The snapshot of a branch, tag or commit; "" when the cache has none.
std::string cached_snapshot(const std::string& name, const std::string& revision) {
  const fs::path model = cache_folder() / with_dashes(name);
  const fs::path reference = model / "refs" / revision;
  std::string commit = revision;
  if (file_exists(reference)) {
    commit = read_file(reference);
    commit.erase(commit.find_last_not_of(" \r\n") + 1);
  }
  const fs::path snapshot = model / "snapshots" / commit;
  return fs::is_directory(snapshot) ? snapshot.string() : "";
}

}  // namespace

std::string find_model(const std::string& name, const std::string& revision, const std::string& flag) {
  std::error_code error;
  if (fs::exists(name, error)) return fs::absolute(name).lexically_normal();
  if (const std::string found = cached_snapshot(name, revision.empty() ? "main" : revision); !found.empty()) return found;
  const std::string near = likely_name(name, cached_models());
  throw ConfigError((flag.empty() ? "no model \"" + name + "\"" : flag + " " + name + ": it is not") + " here or in the Hugging Face cache (" + cache_folder().string() + ")" +
                    (near.empty() ? (flag.empty() ? ": give a folder or a .gguf file" : ": give a folder") : "; near: " + near + " (local)"));
}

}  // namespace tutti

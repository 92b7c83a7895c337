#include "weights/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

Tensor view_of(const FileTensor& t, const std::shared_ptr<const MappedFile>& file) {
  // The map is read-only; tensors of weights are never written.
  void* data = const_cast<std::byte*>(file->bytes().data()) + t.offset;
  const auto& s = t.shape;
  switch (s.size()) {
    case 0:
      return Tensor::view(data, {}, t.dtype, Device::cpu(), file);
    case 1:
      return Tensor::view(data, {s[0]}, t.dtype, Device::cpu(), file);
    case 2:
      return Tensor::view(data, {s[0], s[1]}, t.dtype, Device::cpu(), file);
    case 3:
      return Tensor::view(data, {s[0], s[1], s[2]}, t.dtype, Device::cpu(), file);
    default:
      CHECK_EQ(s.size(), 4U);
      return Tensor::view(data, {s[0], s[1], s[2], s[3]}, t.dtype, Device::cpu(), file);
  }
}

// Bytes from the first element of a view to its last.
size_t extent_bytes(const Tensor& view) {
  if (view.numel() == 0) return 0;
  const DTypeInfo& info = dtype_info(view.dtype());
  if (view.rank() == 0) return static_cast<size_t>(info.block_bytes);
  size_t bytes = dtype_bytes(view.dtype(), view.size(view.rank() - 1));
  for (int d = 0; d + 1 < view.rank(); ++d)
    bytes += static_cast<size_t>(view.size(d) - 1) * view.stride_bytes(d);
  return bytes;
}

class MappedCheckpoint final : public Checkpoint {
 public:
  void add_file(std::shared_ptr<const MappedFile> file) {
    files_.push_back(file->path());
    maps_.push_back(std::move(file));
  }

  void add_tensor(const FileTensor& t, const std::shared_ptr<const MappedFile>& file) {
    if (!tensors_.emplace(t.name, view_of(t, file)).second) {
      throw IoError(file->path() + ": tensor " + quote_name(t.name) +
                    " is also in another file of this model; keep one of them");
    }
    total_bytes_ += static_cast<int64_t>(t.bytes);
  }

  void set_gguf_metadata(Json metadata) {
    is_gguf_ = true;
    metadata_ = std::move(metadata);
  }

  void release(const Tensor& view) const override {
    const size_t bytes = extent_bytes(view);
    const auto* const begin = view.data_as<const std::byte>();
    for (const auto& map : maps_) {
      const auto whole = map->bytes();
      if (begin < whole.data() || begin + bytes > whole.data() + whole.size()) continue;
      map->release(static_cast<size_t>(begin - whole.data()), bytes);
      return;
    }
  }

 private:
  std::vector<std::shared_ptr<const MappedFile>> maps_;
};

std::vector<std::string> names_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) throw IoError("cannot list " + folder + ": " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> with_suffix(const std::vector<std::string>& names,
                                     std::string_view suffix) {
  std::vector<std::string> found;
  std::copy_if(names.begin(), names.end(), std::back_inserter(found),
               [suffix](const std::string& name) {
                 return name.size() > suffix.size() && name.ends_with(suffix);
               });
  return found;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

// ---- safetensors ----

std::string join(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).string();
}

std::unique_ptr<Checkpoint> open_safetensors_files(const std::vector<std::string>& paths) {
  auto checkpoint = std::make_unique<MappedCheckpoint>();
  for (const std::string& path : paths) {
    const auto file = MappedFile::open(path);
    checkpoint->add_file(file);
    for (const FileTensor& t : parse_safetensors(file->bytes(), path).tensors)
      checkpoint->add_tensor(t, file);
  }
  return checkpoint;
}

// "'a', 'b', 'c' and 12 more"
std::string name_some(const std::set<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown == kShown) return text + " and " + std::to_string(names.size() - kShown) + " more";
    text += (shown++ > 0 ? ", " : "") + quote_name(name);
  }
  return text;
}

// The index is the truth: a shard must hold the tensors it is said to hold; what else it holds is
// not used.
std::unique_ptr<Checkpoint> open_sharded_safetensors(const std::string& folder) {
  const std::string index_path = join(folder, kIndexName);
  std::map<std::string, std::set<std::string>> shards;  // file name -> tensor names
  for (const auto& [tensor, file] : parse_safetensors_index(read_file(index_path), index_path))
    shards[file].insert(tensor);
  if (shards.empty()) throw IoError(index_path + ": names no tensors");
  for (const auto& [name, wanted] : shards) {
    if (file_exists(join(folder, name))) continue;
    throw IoError("missing shard " + join(folder, name) + ": by " + kIndexName + " it holds " +
                  name_some(wanted) + " (download the model again)");
  }
  auto checkpoint = std::make_unique<MappedCheckpoint>();
  for (const auto& [name, wanted] : shards) {
    const auto file = MappedFile::open(join(folder, name));
    checkpoint->add_file(file);
    std::set<std::string> missing = wanted;
    for (const FileTensor& t : parse_safetensors(file->bytes(), file->path()).tensors) {
      if (missing.erase(t.name) > 0) checkpoint->add_tensor(t, file);
    }
    if (!missing.empty()) {
      throw IoError(file->path() + ": has no tensor " + name_some(missing) + ", which " +
                    kIndexName + " says it holds (files of two different models?)");
    }
  }
  return checkpoint;
}

std::unique_ptr<Checkpoint> open_safetensors_folder(const std::string& folder,
                                                    const std::vector<std::string>& names) {
  if (contains(names, kIndexName)) return open_sharded_safetensors(folder);
  if (contains(names, kSingleName)) return open_safetensors_files({join(folder, kSingleName)});
  std::vector<std::string> paths;
  for (const std::string& name : with_suffix(names, ".safetensors"))
    paths.push_back(join(folder, name));
  return open_safetensors_files(paths);
}

// ---- GGUF ----

// "model-00002-of-00003.gguf" -> {"model", 2, 3}; nothing for other names.
struct PartName {
  std::string prefix;
  int64_t number;
  int64_t count;

  std::string name(int64_t part) const {
    char tail[48];
    std::snprintf(tail, sizeof(tail), "-%05lld-of-%05lld.gguf", static_cast<long long>(part),
                  static_cast<long long>(count));
    return prefix + tail;
  }
};

std::optional<PartName> parse_part_name(const std::string& name) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (name.size() <= kPattern.size()) return std::nullopt;
  PartName part{name.substr(0, name.size() - kPattern.size()), 0, 0};
  const std::string tail = name.substr(part.prefix.size());
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = tail[i] >= '0' && tail[i] <= '9';
    if (kPattern[i] == '0' ? !digit : tail[i] != kPattern[i]) return std::nullopt;
  }
  part.number = std::stol(tail.substr(1, 5));
  part.count = std::stol(tail.substr(10, 5));
  return part;
}

int64_t metadata_int(const Json& metadata, const std::string& key, int64_t otherwise,
                     const std::string& path) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return otherwise;
  if (!found->is_number_integer())
    throw IoError(path + ": metadata '" + key + "' must be an integer, found " + dump_json(*found));
  return found->get<int64_t>();
}

void check_part(const Json& metadata, int64_t number, int64_t count, const std::string& path) {
  const int64_t found_number = metadata_int(metadata, "split.no", 0, path);
  const int64_t found_count = metadata_int(metadata, "split.count", 1, path);
  if (found_number == number && found_count == count) return;
  throw IoError(path + ": is part " + std::to_string(found_number + 1) + " of " +
                std::to_string(found_count) + " by its metadata, expected part " +
                std::to_string(number + 1) + " of " + std::to_string(count));
}

std::unique_ptr<Checkpoint> open_gguf(const std::string& path) {
  auto checkpoint = std::make_unique<MappedCheckpoint>();
  auto file = MappedFile::open(path);
  GgufHeader header = parse_gguf(file->bytes(), path);
  const int64_t count = metadata_int(header.metadata, "split.count", 1, path);
  if (count <= 1) {
    checkpoint->add_file(file);
    for (const FileTensor& t : header.tensors) checkpoint->add_tensor(t, file);
    checkpoint->set_gguf_metadata(std::move(header.metadata));
    return checkpoint;
  }
  const fs::path where(path);
  const std::optional<PartName> name = parse_part_name(where.filename().string());
  if (!name || name->count != count) {
    throw IoError(path + ": is one of " + std::to_string(count) +
                  " parts by its metadata, so its name must end in -0000N-of-" +
                  PartName{"", 0, count}.name(0).substr(10) + " for the others to be found");
  }
  int64_t tensors_expected = -1;
  for (int64_t part = 0; part < count; ++part) {
    const std::string part_path = (where.parent_path() / name->name(part + 1)).string();
    if (!file_exists(part_path)) {
      throw IoError("missing part " + part_path + ": the model has " + std::to_string(count) +
                    " parts (download it)");
    }
    file = MappedFile::open(part_path);
    header = parse_gguf(file->bytes(), part_path);
    check_part(header.metadata, part, count, part_path);
    checkpoint->add_file(file);
    for (const FileTensor& t : header.tensors) checkpoint->add_tensor(t, file);
    if (part > 0) continue;
    tensors_expected = metadata_int(header.metadata, "split.tensors.count", -1, part_path);
    checkpoint->set_gguf_metadata(std::move(header.metadata));
  }
  const auto found = static_cast<int64_t>(checkpoint->tensors().size());
  if (tensors_expected >= 0 && found != tensors_expected) {
    throw IoError(path + ": the parts have " + std::to_string(found) +
                  " tensors together, expected " + std::to_string(tensors_expected) +
                  " (parts of two different models?)");
  }
  return checkpoint;
}

// The one model among a folder's GGUF files: a single file, or the parts of a single split.
std::unique_ptr<Checkpoint> open_gguf_folder(const std::string& folder,
                                             const std::vector<std::string>& names) {
  std::map<std::string, std::string> models;  // what the parts of one model share -> its first file
  for (const std::string& name : with_suffix(names, ".gguf")) {
    const std::optional<PartName> part = parse_part_name(name);
    models.emplace(part ? part->name(0) : name, name);
  }
  if (models.size() > 1) {
    std::set<std::string> choices;
    for (const auto& [key, first] : models) choices.insert(first);
    throw IoError(folder + ": has " + std::to_string(models.size()) +
                  " GGUF models: " + name_some(choices) + "; give the path of one");
  }
  return open_gguf(join(folder, models.begin()->second));
}

// ---- either ----

std::unique_ptr<Checkpoint> open_folder(const std::string& folder, LoadFormat format) {
  const std::vector<std::string> names = names_in(folder);
  const bool safetensors =
      contains(names, kIndexName) || !with_suffix(names, ".safetensors").empty();
  const bool gguf = !with_suffix(names, ".gguf").empty();
  if (safetensors && format != LoadFormat::kGguf) return open_safetensors_folder(folder, names);
  if (gguf && format != LoadFormat::kSafetensors) return open_gguf_folder(folder, names);
  std::string expected = "*.safetensors or *.gguf";
  if (format == LoadFormat::kGguf) expected = "*.gguf (--load-format gguf)";
  if (format == LoadFormat::kSafetensors) expected = "*.safetensors (--load-format safetensors)";
  const bool pickled = !with_suffix(names, ".bin").empty() || !with_suffix(names, ".pth").empty();
  throw IoError(
      folder + ": has no weights: expected " + expected +
      (pickled
           ? "; found PyTorch pickle files only, which are not read (save the model as safetensors)"
           : ""));
}

bool begins_with_gguf(const std::string& path) {
  const auto file = MappedFile::open(path);
  return file->bytes().size() >= 4 && std::memcmp(file->bytes().data(), "GGUF", 4) == 0;
}

std::unique_ptr<Checkpoint> open_file(const std::string& path, LoadFormat format) {
  const bool gguf = begins_with_gguf(path);
  if (gguf && format == LoadFormat::kSafetensors) {
    throw IoError(path + ": is a GGUF file, but --load-format safetensors was asked for");
  }
  if (gguf || format == LoadFormat::kGguf || path.ends_with(".gguf")) return open_gguf(path);
  return open_safetensors_files({path});
}

}  // namespace

std::unique_ptr<Checkpoint> Checkpoint::open(const std::string& path, LoadFormat format) {
  CHECK(format !=
        LoadFormat::kDummy);  // random weights have no files; whoever wants them does not open any
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw IoError("no such model file or folder: " + path);
  auto checkpoint = fs::is_directory(status) ? open_folder(path, format) : open_file(path, format);
  if (checkpoint->tensors().empty()) throw IoError(path + ": the model's files hold no tensors");
  return checkpoint;
}

const Tensor* Checkpoint::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace tutti

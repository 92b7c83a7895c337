#include "weights/safetensors_writer.h"

#include <algorithm>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace tutti {

std::string serialize_safetensors(const std::map<std::string, Tensor>& tensors,
                                  const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<std::string, Tensor>> ordered(tensors.begin(), tensors.end());
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return dtype_info(a.second.dtype()).block_bytes > dtype_info(b.second.dtype()).block_bytes;
  });
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t end = 0;
  for (const auto& [name, tensor] : ordered) {
    CHECK(!is_quantized(tensor.dtype()) && tensor.is_contiguous());
    Json shape = Json::array();
    for (int d = 0; d < tensor.rank(); ++d) shape.push_back(tensor.size(d));
    header[name] = {{"dtype", dtype_name(tensor.dtype())},
                    {"shape", shape},
                    {"data_offsets", {end, end + tensor.bytes()}}};
    end += tensor.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file.reserve(sizeof(length) + text.size() + end);
  file += text;
  for (const auto& [name, tensor] : ordered)
    file.append(tensor.data_as<const char>(), tensor.bytes());
  return file;
}

void write_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_file(path, serialize_safetensors(tensors, metadata));
}

}  // namespace tutti

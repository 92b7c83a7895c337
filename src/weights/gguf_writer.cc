#include "weights/gguf_writer.h"

#include "base/file.h"
#include "weights/gguf.h"

namespace tutti {
namespace {

// Value types of GGUF.
constexpr uint32_t kU16 = 2, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9,
                   kU64 = 10;

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_string(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

void pad(std::string& out, size_t alignment) {
  out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
}

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  if (alignment != 32) add_u32("general.alignment", alignment);
}

template <typename T>
void GgufWriter::add_value(const std::string& key, uint32_t type, T value) {
  put_string(pairs_, key);
  put(pairs_, type);
  put(pairs_, value);
  ++num_pairs_;
}

void GgufWriter::begin_array(const std::string& key, uint32_t element_type, size_t count) {
  add_value(key, kArray, element_type);
  put<uint64_t>(pairs_, count);
}

void GgufWriter::add_bool(const std::string& key, bool value) {
  add_value<uint8_t>(key, kBool, value ? 1 : 0);
}
void GgufWriter::add_u16(const std::string& key, uint16_t value) { add_value(key, kU16, value); }
void GgufWriter::add_u32(const std::string& key, uint32_t value) { add_value(key, kU32, value); }
void GgufWriter::add_i32(const std::string& key, int32_t value) { add_value(key, kI32, value); }
void GgufWriter::add_u64(const std::string& key, uint64_t value) { add_value(key, kU64, value); }
void GgufWriter::add_f32(const std::string& key, float value) { add_value(key, kF32, value); }

void GgufWriter::add_string(const std::string& key, std::string_view value) {
  add_value<uint64_t>(key, kString, value.size());
  pairs_ += value;
}

void GgufWriter::add_strings(const std::string& key, const std::vector<std::string>& values) {
  begin_array(key, kString, values.size());
  for (const std::string& value : values) put_string(pairs_, value);
}

void GgufWriter::add_i32s(const std::string& key, const std::vector<int32_t>& values) {
  begin_array(key, kI32, values.size());
  for (int32_t value : values) put(pairs_, value);
}

void GgufWriter::add_f32s(const std::string& key, const std::vector<float>& values) {
  begin_array(key, kF32, values.size());
  for (float value : values) put(pairs_, value);
}

void GgufWriter::add_tensor(const std::string& name, Tensor tensor) {
  CHECK(tensor.is_contiguous());
  tensors_.emplace_back(name, std::move(tensor));
}

std::string GgufWriter::serialize() const {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, tensors_.size());
  put<uint64_t>(out, num_pairs_);
  out += pairs_;
  size_t offset = 0;
  for (const auto& [name, tensor] : tensors_) {
    put_string(out, name);
    put<uint32_t>(out, static_cast<uint32_t>(tensor.rank()));
    for (int d = tensor.rank() - 1; d >= 0; --d)
      put<uint64_t>(out, static_cast<uint64_t>(tensor.size(d)));
    put<uint32_t>(out, ggml_type_of(tensor.dtype()));
    put<uint64_t>(out, offset);
    offset += (tensor.bytes() + alignment_ - 1) / alignment_ * alignment_;
  }
  for (const auto& [name, tensor] : tensors_) {
    pad(out, alignment_);
    out.append(tensor.data_as<const char>(), tensor.bytes());
  }
  pad(out, alignment_);
  return out;
}

void GgufWriter::write(const std::string& path) const { write_file(path, serialize()); }

}  // namespace tutti

#include "weights/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <set>

#include "base/error.h"
#include "tensor/tensor.h"

namespace tutti {
namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr size_t kLongestName = 65535;  // of keys, by the specification
constexpr int kDeepestArray = 4;        // arrays of arrays
// Elements of all arrays together. The largest vocabularies need under two million; an element may
// take sixteen times its size in the file.
constexpr uint64_t kMostElements = uint64_t{1} << 24;

struct GgmlType {
  uint32_t number;
  std::string_view name;
  DType dtype;  // kCount: a type that is known by name only
};
constexpr DType kNone = DType::kCount;
constexpr std::array<GgmlType, 34> kTypes = {{
    {0, "F32", DType::kF32},    {1, "F16", DType::kF16},    {2, "Q4_0", DType::kQ4_0},
    {3, "Q4_1", DType::kQ4_1},  {4, "Q4_2", kNone},         {5, "Q4_3", kNone},
    {6, "Q5_0", DType::kQ5_0},  {7, "Q5_1", DType::kQ5_1},  {8, "Q8_0", DType::kQ8_0},
    {9, "Q8_1", kNone},         {10, "Q2_K", DType::kQ2_K}, {11, "Q3_K", DType::kQ3_K},
    {12, "Q4_K", DType::kQ4_K}, {13, "Q5_K", DType::kQ5_K}, {14, "Q6_K", DType::kQ6_K},
    {15, "Q8_K", kNone},        {16, "IQ2_XXS", kNone},     {17, "IQ2_XS", kNone},
    {18, "IQ3_XXS", kNone},     {19, "IQ1_S", kNone},       {20, "IQ4_NL", DType::kIQ4_NL},
    {21, "IQ3_S", kNone},       {22, "IQ2_S", kNone},       {23, "IQ4_XS", DType::kIQ4_XS},
    {24, "I8", DType::kI8},     {25, "I16", kNone},         {26, "I32", DType::kI32},
    {27, "I64", DType::kI64},   {28, "F64", kNone},         {29, "IQ1_M", kNone},
    {30, "BF16", DType::kBF16}, {34, "TQ1_0", kNone},       {35, "TQ2_0", kNone},
    {39, "MXFP4", kNone},
}};

const GgmlType* find_type(uint32_t number) {
  for (const GgmlType& type : kTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

enum ValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
  kNumValueTypes,
};

// The fewest bytes that a value takes: strings have a length, arrays a type and a count.
constexpr std::array<uint64_t, kNumValueTypes> kLeastBytes = {1, 1, 2,  2, 4, 4, 4,
                                                              1, 8, 12, 8, 8, 8};

class Reader {
 public:
  Reader(std::span<const std::byte> file, std::string path) : file_(file), path_(std::move(path)) {}

  [[noreturn]] void fail(const std::string& what) const { throw IoError(path_ + ": " + what); }

  size_t position() const { return position_; }
  size_t left() const { return file_.size() - position_; }

  // `what` names the thing that is being read, for the message when the file ends inside it.
  template <typename T>
  T number(const std::string& what) {
    need(sizeof(T), what);
    T value;
    std::memcpy(&value, file_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::string string(const std::string& what, size_t longest) {
    const auto length = number<uint64_t>(what);
    if (length > left()) {
      fail(what + " claims " + std::to_string(length) + " bytes, but only " +
           std::to_string(left()) + " are left");
    }
    if (length > longest)
      fail(what + " is " + std::to_string(length) + " bytes long, the limit is " +
           std::to_string(longest));
    std::string text(reinterpret_cast<const char*>(file_.data()) + position_, length);
    position_ += length;
    return text;
  }

 private:
  void need(size_t bytes, const std::string& what) const {
    if (bytes > left()) {
      fail("the file ends at byte " + std::to_string(file_.size()) + ", inside " + what +
           " (truncated? download it again)");
    }
  }

  std::span<const std::byte> file_;
  std::string path_;
  size_t position_ = 0;
};

// One metadata value, or an element of an array.
class ValueReader {
 public:
  explicit ValueReader(Reader& reader) : reader_(reader) {}

  Json read(uint32_t type, const std::string& what, int depth = 0) {
    switch (type) {
      case kUint8:
        return reader_.number<uint8_t>(what);
      case kInt8:
        return reader_.number<int8_t>(what);
      case kUint16:
        return reader_.number<uint16_t>(what);
      case kInt16:
        return reader_.number<int16_t>(what);
      case kUint32:
        return reader_.number<uint32_t>(what);
      case kInt32:
        return reader_.number<int32_t>(what);
      case kUint64:
        return reader_.number<uint64_t>(what);
      case kInt64:
        return reader_.number<int64_t>(what);
      case kFloat32:
        return static_cast<double>(reader_.number<float>(what));
      case kFloat64:
        return reader_.number<double>(what);
      case kString:
        return reader_.string(what, std::numeric_limits<size_t>::max());
      case kBool:
        return boolean(what);
      case kArray:
        return array(what, depth + 1);
      default:
        reader_.fail(what + " has value type " + std::to_string(type) +
                     ", which GGUF does not have");
    }
  }

 private:
  Json boolean(const std::string& what) {
    const auto value = reader_.number<uint8_t>(what);
    if (value > 1)
      reader_.fail(what + " is a boolean of value " + std::to_string(value) + ", expected 0 or 1");
    return value == 1;
  }

  Json array(const std::string& what, int depth) {
    if (depth > kDeepestArray)
      reader_.fail(what + " nests arrays deeper than " + std::to_string(kDeepestArray));
    const auto type = reader_.number<uint32_t>(what);
    const auto count = reader_.number<uint64_t>(what);
    if (type >= kNumValueTypes) {
      reader_.fail(what + " is an array of value type " + std::to_string(type) +
                   ", which GGUF does not have");
    }
    if (count > reader_.left() / kLeastBytes[type]) {
      reader_.fail(what + " claims " + std::to_string(count) + " elements, but only " +
                   std::to_string(reader_.left()) + " bytes are left");
    }
    if (count > kMostElements - num_elements_) {
      reader_.fail(what + ": the metadata's arrays have more than " +
                   std::to_string(kMostElements) + " elements");
    }
    num_elements_ += count;
    Json values = Json::array();
    auto& elements = values.get_ref<Json::array_t&>();
    elements.reserve(count);
    for (uint64_t i = 0; i < count; ++i) elements.push_back(read(type, what, depth));
    return values;
  }

  Reader& reader_;
  uint64_t num_elements_ = 0;
};

void read_preamble(Reader& reader, GgufHeader& header) {
  if (reader.left() < 4 || reader.number<uint32_t>("the magic") != 0x46554747) {
    reader.fail("not a GGUF file: it does not begin with \"GGUF\"");
  }
  header.version = reader.number<uint32_t>("the version");
  if (header.version != 0 && (header.version & 0xffff) == 0) {
    reader.fail(
        "a big-endian GGUF file, which is not supported (convert it again with --little-endian or "
        "without --bigendian)");
  }
  if (header.version != 2 && header.version != 3) {
    reader.fail("GGUF version " + std::to_string(header.version) +
                ", supported are 2 and 3 (convert the model again)");
  }
}

void read_metadata(Reader& reader, uint64_t count, GgufHeader& header) {
  constexpr uint64_t kLeastPair = 8 + 4 + 1;
  if (count > reader.left() / kLeastPair) {
    reader.fail("claims " + std::to_string(count) + " metadata keys, but only " +
                std::to_string(reader.left()) + " bytes are left");
  }
  ValueReader values(reader);
  std::set<std::string> keys;
  auto& pairs = header.metadata.get_ref<Json::object_t&>();
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = reader.string("metadata key " + std::to_string(i), kLongestName);
    const std::string what = "metadata " + quote_name(key);
    if (!keys.insert(key).second) reader.fail(what + " is there twice");
    const auto type = reader.number<uint32_t>(what);
    pairs.emplace_back(std::move(key), values.read(type, what));
  }
}

uint64_t read_alignment(const Reader& reader, const Json& metadata) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return kDefaultAlignment;
  const uint64_t alignment = found->is_number_unsigned() ? found->get<uint64_t>() : 0;
  if (alignment < 8 || !std::has_single_bit(alignment) ||
      alignment > std::numeric_limits<uint32_t>::max()) {
    reader.fail("metadata 'general.alignment' must be a power of two of 8 or more, found " +
                dump_json(*found));
  }
  return alignment;
}

// Leaves the offset relative to the data section.
FileTensor read_tensor(Reader& reader, uint64_t index) {
  FileTensor tensor;
  tensor.name = reader.string("the name of tensor " + std::to_string(index), kLongestName);
  const std::string what = "tensor " + quote_name(tensor.name);
  const auto rank = reader.number<uint32_t>(what);
  if (rank > Tensor::kMaxRank) {
    reader.fail(what + " has " + std::to_string(rank) + " dimensions, at most " +
                std::to_string(Tensor::kMaxRank) + " are supported");
  }
  for (uint32_t d = 0; d < rank; ++d) {
    const auto size = reader.number<uint64_t>(what);
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      reader.fail(what + " has a dimension beyond 2^63");
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());  // the file has the row's length first
  const auto number = reader.number<uint32_t>(what);
  const GgmlType* type = find_type(number);
  if (type == nullptr || type->dtype == kNone) {
    std::string known;
    for (const GgmlType& t : kTypes) {
      if (t.dtype != kNone) known += " " + std::string(t.name);
    }
    reader.fail(what + " has type " + ggml_type_name(number) +
                ", which is not supported; supported are" + known);
  }
  tensor.dtype = type->dtype;
  const std::optional<size_t> bytes = checked_bytes(tensor.dtype, tensor.shape);
  if (!bytes) {
    reader.fail(what + " is " + std::string(type->name) + shape_text(tensor.shape) +
                ": its rows must be whole blocks of " +
                std::to_string(dtype_info(tensor.dtype).block_size) +
                " elements and its size under 2^63 bytes");
  }
  tensor.bytes = *bytes;
  tensor.offset = reader.number<uint64_t>(what);
  return tensor;
}

// Offsets become those of the file; tensors must lie inside it and apart from each other.
void place_tensors(const Reader& reader, size_t file_bytes, uint64_t alignment,
                   std::vector<FileTensor>& tensors) {
  if (tensors.empty()) return;
  const size_t data_begin = (reader.position() + alignment - 1) / alignment * alignment;
  if (data_begin > file_bytes)
    reader.fail("the file ends before its tensor data (truncated? download it again)");
  const size_t data_bytes = file_bytes - data_begin;
  for (FileTensor& t : tensors) {
    const std::string what = "tensor " + quote_name(t.name);
    if (t.offset % alignment != 0) {
      reader.fail(what + " begins at " + std::to_string(t.offset) +
                  ", which is no multiple of the alignment " + std::to_string(alignment));
    }
    if (t.offset > data_bytes || t.bytes > data_bytes - t.offset) {
      reader.fail(what + " takes " + std::to_string(t.bytes) + " bytes at " +
                  std::to_string(t.offset) + ", but the file has only " +
                  std::to_string(data_bytes) + " bytes of data (truncated? download it again)");
    }
    t.offset += data_begin;
  }
  std::vector<const FileTensor*> by_offset;
  by_offset.reserve(tensors.size());
  for (const FileTensor& t : tensors) {
    if (t.bytes > 0) by_offset.push_back(&t);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const FileTensor& before = *by_offset[i - 1];
    if (by_offset[i]->offset < before.offset + before.bytes) {
      reader.fail("tensor " + quote_name(by_offset[i]->name) + " overlaps tensor " +
                  quote_name(before.name));
    }
  }
}

}  // namespace

std::string ggml_type_name(uint32_t type) {
  const GgmlType* known = find_type(type);
  return known == nullptr ? "type " + std::to_string(type) : std::string(known->name);
}

uint32_t ggml_type_of(DType dtype) {
  const auto* const found = std::find_if(kTypes.begin(), kTypes.end(),
                                         [dtype](const GgmlType& t) { return t.dtype == dtype; });
  CHECK(dtype != kNone && found != kTypes.end());
  return found->number;
}

GgufHeader parse_gguf(std::span<const std::byte> file, const std::string& path) {
  Reader reader(file, path);
  GgufHeader header;
  read_preamble(reader, header);
  const auto num_tensors = reader.number<uint64_t>("the number of tensors");
  const auto num_pairs = reader.number<uint64_t>("the number of metadata keys");
  read_metadata(reader, num_pairs, header);
  constexpr uint64_t kLeastTensor = 8 + 4 + 4 + 8;
  if (num_tensors > reader.left() / kLeastTensor) {
    reader.fail("claims " + std::to_string(num_tensors) + " tensors, but only " +
                std::to_string(reader.left()) + " bytes are left");
  }
  const uint64_t alignment = read_alignment(reader, header.metadata);
  std::set<std::string_view> names;
  header.tensors.reserve(num_tensors);
  for (uint64_t i = 0; i < num_tensors; ++i) {
    header.tensors.push_back(read_tensor(reader, i));
    if (!names.insert(header.tensors.back().name).second) {
      reader.fail("tensor " + quote_name(header.tensors.back().name) + " is there twice");
    }
  }
  place_tensors(reader, file.size(), alignment, header.tensors);
  return header;
}

}  // namespace tutti

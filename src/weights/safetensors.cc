#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "tensor/tensor.h"

namespace tutti {
namespace {

constexpr uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr size_t kLengthBytes = 8;

struct DTypeName {
  std::string_view name;
  DType dtype;
};
constexpr std::array<DTypeName, 8> kDTypes = {{{"F32", DType::kF32},
                                               {"F16", DType::kF16},
                                               {"BF16", DType::kBF16},
                                               {"F8_E4M3", DType::kF8E4M3},
                                               {"I8", DType::kI8},
                                               {"U8", DType::kU8},
                                               {"I32", DType::kI32},
                                               {"I64", DType::kI64}}};

std::optional<DType> find_dtype(std::string_view name) {
  for (const DTypeName& known : kDTypes) {
    if (known.name == name) return known.dtype;
  }
  return std::nullopt;
}

// Parser events in place of a tree: large checkpoints have headers of many megabytes, duplicate
// keys must be seen (a tree drops them), and nothing is allocated that the file did not spell out.
// Each callback says whether the value is wanted where the parser stands; one that is not ends the
// parse with an error.
class EventHandler : public Json::json_sax_t {
 public:
  explicit EventHandler(std::string path) : path_(std::move(path)) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_unsigned(number_unsigned_t) override { unexpected("a number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a fraction"); }
  bool string(string_t&) override { unexpected("a string"); }
  bool binary(binary_t&) override { unexpected("binary data"); }
  bool start_array(std::size_t) override { unexpected("an array"); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& e) override {
    throw IoError(path_ + ": not valid JSON at byte " + std::to_string(position) + ": " + e.what());
  }

 protected:
  [[noreturn]] void fail(const std::string& what) const { throw IoError(path_ + ": " + what); }
  [[noreturn]] void unexpected(const std::string& found) const { fail(describe_unexpected(found)); }
  // What stands at this place and what should.
  virtual std::string describe_unexpected(const std::string& found) const = 0;

  std::string path_;
};

class HeaderHandler final : public EventHandler {
 public:
  using EventHandler::EventHandler;

  // Offsets are still those of the header: from the end of the header on.
  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTopValue) {
      place_ = in_metadata_ ? Place::kMetadata : Place::kTensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& key) override {
    if (place_ == Place::kTop) {
      if (!names_.insert(key).second) fail("the header names " + quote_name(key) + " twice");
      in_metadata_ = key == "__metadata__";
      tensor_ = {};
      tensor_.name = key;
      seen_.fill(false);
      place_ = Place::kTopValue;
    } else if (place_ == Place::kMetadata) {
      metadata_key_ = key;
    } else {
      const auto* const field = std::find(kFields.begin(), kFields.end(), key);
      if (field == kFields.end()) fail_tensor("has an unknown field " + quote_name(key));
      field_ = static_cast<size_t>(field - kFields.begin());
      if (seen_[field_]) fail_tensor("names its " + key + " twice");
      seen_[field_] = true;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      if (!header_.metadata.emplace(metadata_key_, value).second) {
        fail("__metadata__ names " + quote_name(metadata_key_) + " twice");
      }
      return true;
    }
    if (place_ != Place::kTensor || field_ != kDtype) unexpected("a string");
    const std::optional<DType> dtype = find_dtype(value);
    if (!dtype) {
      std::string known;
      for (const DTypeName& d : kDTypes) known += " " + std::string(d.name);
      fail_tensor("has dtype " + quote_name(value) + ", which is not supported; supported are" +
                  known);
    }
    tensor_.dtype = *dtype;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || field_ == kDtype) unexpected("an array");
    place_ = Place::kArray;
    num_offsets_ = 0;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kArray) unexpected("a number");
    if (field_ == kShape) {
      if (tensor_.shape.size() == Tensor::kMaxRank) {
        fail_tensor("has more than " + std::to_string(Tensor::kMaxRank) + " dimensions");
      }
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        fail_tensor("has a dimension beyond 2^63");
      tensor_.shape.push_back(static_cast<int64_t>(value));
    } else {
      if (num_offsets_ == 2) fail_tensor("has more than 2 data_offsets");
      offsets_[num_offsets_++] = value;
    }
    return true;
  }

  bool end_array() override {
    if (field_ == kOffsets && num_offsets_ != 2) fail_tensor("has fewer than 2 data_offsets");
    place_ = Place::kTensor;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) add_tensor();
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

 private:
  enum class Place { kStart, kTop, kTopValue, kMetadata, kTensor, kArray, kEnd };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
  static constexpr size_t kDtype = 0, kShape = 1, kOffsets = 2;

  [[noreturn]] void fail_tensor(const std::string& what) const {
    fail("tensor " + quote_name(tensor_.name) + " " + what);
  }

  std::string describe_unexpected(const std::string& found) const override {
    switch (place_) {
      case Place::kStart:
        return "the header must be a JSON object, found " + found;
      case Place::kMetadata:
        return "__metadata__ " + quote_name(metadata_key_) + " must be a string, found " + found;
      case Place::kTopValue:
        return quote_name(tensor_.name) + " must be an object, found " + found;
      default:
        return "tensor " + quote_name(tensor_.name) + ": its " + std::string(kFields[field_]) +
               " cannot be " + found;
    }
  }

  void add_tensor() {
    for (size_t i = 0; i < kFields.size(); ++i) {
      if (!seen_[i]) fail_tensor("has no " + std::string(kFields[i]));
    }
    if (offsets_[1] < offsets_[0]) fail_tensor("ends before it begins");
    const std::optional<size_t> bytes = checked_bytes(tensor_.dtype, tensor_.shape);
    const uint64_t range = offsets_[1] - offsets_[0];
    if (!bytes || *bytes != range) {
      fail_tensor("is " + std::string(dtype_name(tensor_.dtype)) + shape_text(tensor_.shape) +
                  ", which takes " + (bytes ? std::to_string(*bytes) : "more than 2^63") +
                  " bytes, but its data_offsets hold " + std::to_string(range));
    }
    tensor_.offset = offsets_[0];
    tensor_.bytes = range;
    header_.tensors.push_back(std::move(tensor_));
  }

  SafetensorsHeader header_;
  std::set<std::string> names_;
  Place place_ = Place::kStart;
  bool in_metadata_ = false;
  std::string metadata_key_;
  FileTensor tensor_;
  size_t field_ = 0;
  std::array<bool, 3> seen_{};
  std::array<uint64_t, 2> offsets_{};
  size_t num_offsets_ = 0;
};

class IndexHandler final : public EventHandler {
 public:
  using EventHandler::EventHandler;

  std::map<std::string, std::string> take() {
    if (!seen_map_) fail("has no \"weight_map\"");
    return std::move(map_);
  }

  bool start_object(std::size_t) override {
    if (++depth_ > kDeepest) fail("is nested too deep");
    if (depth_ == 2 && key_ == "weight_map") {
      if (seen_map_) fail("has \"weight_map\" twice");
      in_map_ = seen_map_ = true;
    } else if (in_map_) {
      unexpected("an object");
    }
    return true;
  }
  bool end_object() override {
    if (depth_-- == 2) in_map_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0 || in_map_) unexpected("an array");
    if (++depth_ > kDeepest) fail("is nested too deep");
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& key) override {
    key_ = key;
    return true;
  }
  bool string(string_t& value) override {
    if (!in_map_) return other("a string");
    const bool plain = !value.empty() && value.find('/') == std::string::npos &&
                       value.find('\0') == std::string::npos;
    if (!plain)
      fail("tensor " + quote_name(key_) + " is said to be in " + quote_name(value) +
           ", which is not a plain file name");
    if (!map_.emplace(key_, value).second) fail("names tensor " + quote_name(key_) + " twice");
    return true;
  }
  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }

 private:
  static constexpr int kDeepest = 16;

  // What stands beside the weight map ("metadata": {"total_size": ...}) is not used.
  bool other(const std::string& found) const {
    if (depth_ == 0 || in_map_ || (depth_ == 1 && key_ == "weight_map")) unexpected(found);
    return true;
  }
  std::string describe_unexpected(const std::string& found) const override {
    if (depth_ == 0) return "must be a JSON object, found " + found;
    if (!in_map_) return "\"weight_map\" must be an object, found " + found;
    return "the file of tensor " + quote_name(key_) + " must be a string, found " + found;
  }

  std::map<std::string, std::string> map_;
  std::string key_;
  int depth_ = 0;
  bool in_map_ = false;
  bool seen_map_ = false;
};

// No overlaps, no holes, nothing behind the last tensor. Turns offsets into those of the file.
void check_layout(std::vector<FileTensor>& tensors, size_t data_begin, size_t data_bytes,
                  const std::string& path) {
  std::sort(tensors.begin(), tensors.end(), [](const FileTensor& a, const FileTensor& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  size_t end = 0;
  for (FileTensor& t : tensors) {
    const std::string tensor = path + ": tensor " + quote_name(t.name);
    if (t.offset < end) {
      throw IoError(tensor + " overlaps the one before it (begins at " + std::to_string(t.offset) +
                    ", expected " + std::to_string(end) + ")");
    }
    if (t.offset > end) {
      throw IoError(tensor + " begins at " + std::to_string(t.offset) +
                    ", but the one before it ends at " + std::to_string(end) + ": a hole");
    }
    end = t.offset + t.bytes;
    if (end > data_bytes) {
      throw IoError(tensor + " ends at byte " + std::to_string(end) +
                    " of the data, but the file has only " + std::to_string(data_bytes) +
                    " (truncated? download it again)");
    }
    t.offset += data_begin;
    if (t.offset % element_alignment(t.dtype) != 0) {
      throw IoError(
          tensor + " (" + std::string(dtype_name(t.dtype)) + ") begins at byte " +
          std::to_string(t.offset) +
          ", which is not aligned to its elements (save it again with safetensors 0.3 or newer)");
    }
  }
  if (end != data_bytes) {
    throw IoError(path + ": " + std::to_string(data_bytes - end) +
                  " bytes behind the last tensor belong to no tensor");
  }
}

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kLengthBytes) {
    throw IoError(path + ": not a safetensors file: " + std::to_string(file.size()) +
                  " bytes, expected at least 8");
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes > kLongestHeader) {
    throw IoError(path + ": not a safetensors file: a header of " + std::to_string(header_bytes) +
                  " bytes, the limit is " + std::to_string(kLongestHeader));
  }
  if (header_bytes > file.size() - kLengthBytes) {
    throw IoError(path + ": a header of " + std::to_string(header_bytes) +
                  " bytes, but the file has only " + std::to_string(file.size() - kLengthBytes) +
                  " (truncated? download it again)");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              header_bytes);
  if (text.empty() || text.front() != '{') throw IoError(path + ": the header must begin with '{'");
  HeaderHandler handler(path);
  Json::sax_parse(text.begin(), text.end(), &handler);
  SafetensorsHeader header = handler.take();
  const size_t data_begin = kLengthBytes + header_bytes;
  check_layout(header.tensors, data_begin, file.size() - data_begin, path);
  return header;
}

std::map<std::string, std::string> parse_safetensors_index(const std::string& text,
                                                           const std::string& path) {
  IndexHandler handler(path);
  Json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take();
}

}  // namespace tutti

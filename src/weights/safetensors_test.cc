#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "weights/safetensors_writer.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A file with this header and this many bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file + header + std::string(data_bytes, '\1');
}

std::string message_of(const std::string& file) {
  try {
    parse_safetensors(bytes_of(file), "m.safetensors");
  } catch (const IoError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Safetensors, ReadsWhatTheWriterWrites) {
  Tensor a = Tensor::zeros({2, 3}, DType::kBF16);
  Tensor b = Tensor::zeros({5}, DType::kF32);
  Tensor empty = Tensor::zeros({0, 4}, DType::kF16);
  a.data_as<uint16_t>()[5] = 0x3f80;
  const std::string file =
      serialize_safetensors({{"a", a}, {"b", b}, {"empty", empty}}, {{"format", "pt"}});

  const SafetensorsHeader header = parse_safetensors(bytes_of(file), "m");
  EXPECT_EQ(header.metadata.at("format"), "pt");
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "b");  // widest elements first
  EXPECT_EQ(header.tensors[0].offset % 8, 0U);
  const FileTensor& second = header.tensors[1];
  EXPECT_EQ(second.name, "a");
  EXPECT_EQ(second.dtype, DType::kBF16);
  EXPECT_EQ(second.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(second.bytes, 12U);
  uint16_t element = 0;
  std::memcpy(&element, file.data() + second.offset + 10, 2);
  EXPECT_EQ(element, 0x3f80);
}

TEST(Safetensors, AcceptsScalarsEmptyFilesAndPaddedHeaders) {
  EXPECT_EQ(message_of(file_of("{}      ", 0)), "accepted");
  EXPECT_EQ(message_of(file_of(R"({"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}   )", 8)),
            "accepted");
}

struct BadFile {
  const char* what;
  std::string file;
  const char* message;
};

std::string tensor_file(const std::string& fields, size_t data_bytes) {
  std::string header = R"({"w":{)" + fields + "}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return file_of(header, data_bytes);
}

std::string two_tensors(const std::string& first, const std::string& second, size_t data_bytes) {
  return file_of(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":)" + first +
                     R"(},"b":{"dtype":"I8","shape":[4],"data_offsets":)" + second + "}}",
                 data_bytes);
}

std::vector<BadFile> bad_framing() {
  const std::string huge_length("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
  return {
      {"empty", "", "expected at least 8"},
      {"shorter than the length", "\x02", "expected at least 8"},
      {"length beyond the limit", huge_length, "the limit is 100000000"},
      {"length beyond the file", file_of("{}", 0).substr(0, 9), "truncated"},
      {"no header", file_of("", 8), "must begin with '{'"},
      {"not an object", file_of("[1]", 0), "must begin with '{'"},
      {"leading space", file_of(" {}", 0), "must begin with '{'"},
      {"not JSON", file_of("{]", 0), "not valid JSON at byte"},
      {"text behind the object", file_of("{} x", 0), "not valid JSON at byte"},
      {"not UTF-8", file_of("{\"\xff\xfe\":1}", 0), "not valid JSON at byte"},
      {"nested", file_of(R"({"w":[[[[)", 0), "'w' must be an object, found an array"},
  };
}

std::vector<BadFile> bad_headers() {
  const std::string f32 = R"("dtype":"F32","shape":[2],)";
  return {
      {"entry is a number", file_of(R"({"w":1})", 0), "'w' must be an object, found a number"},
      {"entry is null", file_of(R"({"w":null})", 0), "'w' must be an object, found null"},
      {"metadata is a string", file_of(R"({"__metadata__":"x"})", 0),
       "'__metadata__' must be an object"},
      {"metadata holds a number", file_of(R"({"__metadata__":{"a":1}})", 0),
       "'a' must be a string"},
      {"metadata twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "twice"},
      {"metadata key twice", file_of(R"({"__metadata__":{"a":"b","a":"c"}})", 0),
       "names 'a' twice"},
      {"no dtype", tensor_file(R"("shape":[2],"data_offsets":[0,8])", 8), "has no dtype"},
      {"no shape", tensor_file(R"("dtype":"F32","data_offsets":[0,8])", 8), "has no shape"},
      {"no offsets", tensor_file(R"("dtype":"F32","shape":[2])", 8), "has no data_offsets"},
      {"unknown field", tensor_file(f32 + R"("x":1,"data_offsets":[0,8])", 8), "unknown field 'x'"},
      {"field twice", tensor_file(f32 + R"("shape":[2],"data_offsets":[0,8])", 8),
       "its shape twice"},
      {"unknown dtype", tensor_file(R"("dtype":"F64","shape":[1],"data_offsets":[0,8])", 8),
       "dtype 'F64', which is not supported; supported are F32"},
      {"dtype is a number", tensor_file(R"("dtype":1)", 8), "its dtype cannot be a number"},
      {"negative dimension", tensor_file(R"("dtype":"F32","shape":[-2])", 8),
       "cannot be a negative number"},
      {"fraction", tensor_file(R"("dtype":"F32","shape":[2.0])", 8), "cannot be a fraction"},
      {"nested shape", tensor_file(R"("dtype":"F32","shape":[[2]])", 8),
       "its shape cannot be an array"},
      {"five dimensions",
       tensor_file(R"("dtype":"I8","shape":[1,1,1,1,1],"data_offsets":[0,1])", 1),
       "more than 4 dimensions"},
      {"one offset", tensor_file(f32 + R"("data_offsets":[8])", 8), "fewer than 2"},
      {"three offsets", tensor_file(f32 + R"("data_offsets":[0,8,8])", 8), "more than 2"},
      {"backwards", tensor_file(f32 + R"("data_offsets":[8,0])", 8), "ends before it begins"},
      {"shape and range differ", tensor_file(f32 + R"("data_offsets":[0,12])", 12),
       "is F32[2], which takes 8 bytes, but its data_offsets hold 12"},
      {"product overflows",
       tensor_file(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
       "takes more than 2^63 bytes"},
      {"dimension overflows",
       tensor_file(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,0])", 0),
       "beyond 2^63"},
      {"tensor twice", file_of(R"({"w":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"w":)", 1),
       "names 'w' twice"},
  };
}

std::vector<BadFile> bad_layouts() {
  return {
      {"truncated data", tensor_file(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 7),
       "ends at byte 8 of the data, but the file has only 7 (truncated?"},
      {"far beyond the data",
       tensor_file(
           R"("dtype":"I8","shape":[0],"data_offsets":[9223372036854775807,9223372036854775807])",
           8),
       "a hole"},
      {"overlap", two_tensors("[0,4]", "[2,6]", 6), "tensor 'b' overlaps"},
      {"the same bytes", two_tensors("[0,4]", "[0,4]", 4), "overlaps"},
      {"hole", two_tensors("[0,4]", "[5,9]", 9),
       "tensor 'b' begins at 5, but the one before it ends at 4"},
      {"hole at the front", two_tensors("[1,5]", "[5,9]", 9), "a hole"},
      {"bytes behind", two_tensors("[0,4]", "[4,8]", 11), "3 bytes behind the last tensor"},
      {"unaligned", file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
       "not aligned to its elements"},
  };
}

void expect_messages(const std::vector<BadFile>& table) {
  for (const BadFile& bad : table) {
    const std::string message = message_of(bad.file);
    EXPECT_THAT(message, HasSubstr(bad.message)) << bad.what;
    EXPECT_THAT(message, HasSubstr("m.safetensors: ")) << bad.what;
  }
}

TEST(Safetensors, RefusesBadFraming) { expect_messages(bad_framing()); }
TEST(Safetensors, RefusesBadHeaders) { expect_messages(bad_headers()); }
TEST(Safetensors, RefusesBadLayouts) { expect_messages(bad_layouts()); }

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string file = serialize_safetensors({{"a", Tensor::zeros({3}, DType::kF32)}});
  for (size_t n = 0; n < file.size(); ++n)
    EXPECT_NE(message_of(file.substr(0, n)), "accepted") << n;
}

TEST(SafetensorsIndex, ReadsTheWeightMap) {
  const auto map = parse_safetensors_index(
      R"({"metadata":{"total_size":8,"more":[1,{"a":null}]},"weight_map":{"a":"1.safetensors"}})",
      "i");
  EXPECT_EQ(map, (std::map<std::string, std::string>{{"a", "1.safetensors"}}));
}

TEST(SafetensorsIndex, RefusesBadOnes) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "not valid JSON"},
      {"[]", "must be a JSON object, found an array"},
      {"3", "must be a JSON object, found a number"},
      {"{}", "has no \"weight_map\""},
      {R"({"weight_map":3})", "\"weight_map\" must be an object, found a number"},
      {R"({"weight_map":["a"]})", "has no \"weight_map\""},
      {R"({"weight_map":{"a":3}})", "the file of tensor 'a' must be a string"},
      {R"({"weight_map":{"a":{}}})", "the file of tensor 'a' must be a string"},
      {R"({"weight_map":{"a":"x","a":"y"}})", "names tensor 'a' twice"},
      {R"({"weight_map":{},"weight_map":{}})", "has \"weight_map\" twice"},
      {R"({"weight_map":{"a":"../../etc/passwd"}})", "not a plain file name"},
      {R"({"weight_map":{"a":""}})", "not a plain file name"},
      {std::string(100, '['), "must be a JSON object"},
      {R"({"a":)" + std::string(100, '['), "nested too deep"},
  };
  for (const auto& [text, expected] : table) {
    try {
      parse_safetensors_index(text, "i.json");
      ADD_FAILURE() << "accepted: " << text;
    } catch (const IoError& e) {
      EXPECT_THAT(e.what(), HasSubstr(expected)) << text;
    }
  }
}

}  // namespace
}  // namespace tutti

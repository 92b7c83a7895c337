#include "weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "weights/gguf_writer.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string message_of(const std::string& file) {
  try {
    parse_gguf(bytes_of(file), "m.gguf");
  } catch (const IoError& e) {
    return e.what();
  }
  return "accepted";
}

// Builds files field by field, so that each may lie.
class Raw {
 public:
  explicit Raw(uint64_t num_tensors = 0, uint64_t num_pairs = 0, uint32_t version = 3) {
    text_ = "GGUF";
    put(version).put(num_tensors).put(num_pairs);
  }
  template <typename T>
  Raw& put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Raw& string(const std::string& text) {
    put<uint64_t>(text.size());
    text_ += text;
    return *this;
  }
  Raw& tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
              uint64_t offset) {
    string(name).put<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (uint64_t d : dims) put(d);
    return put(type).put(offset);
  }
  // The data section: padding to the alignment and this many bytes.
  std::string data(size_t bytes, size_t alignment = 32) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment + bytes, '\0');
    return text_;
  }
  std::string end() const { return text_; }

 private:
  std::string text_;
};

constexpr uint32_t kU8 = 0, kU32 = 4, kBool = 7, kString = 8, kArray = 9;

TEST(Gguf, ReadsWhatTheWriterWrites) {
  Tensor a = Tensor::zeros({3, 64}, DType::kQ4_1);
  Tensor b = Tensor::zeros({5}, DType::kF32);
  b.data_as<float>()[4] = 1.5F;
  GgufWriter writer(64);
  writer.add_string("general.architecture", "llama");
  writer.add_bool("flag", true);
  writer.add_u16("split.no", 7);
  writer.add_i32("minus", -3);
  writer.add_u64("big", uint64_t{1} << 60);
  writer.add_f32("eps", 1e-5F);
  writer.add_strings("tokens", {"a", "", "\xff"});
  writer.add_i32s("kinds", {1, -2});
  writer.add_f32s("scores", {0.5F});
  writer.add_tensor("a", a);
  writer.add_tensor("b", b);
  const std::string file = writer.serialize();

  const GgufHeader header = parse_gguf(bytes_of(file), "m");
  EXPECT_EQ(header.version, 3U);
  const Json& m = header.metadata;
  EXPECT_EQ(m.at("general.architecture"), "llama");
  EXPECT_EQ(m.at("flag"), true);
  EXPECT_EQ(m.at("split.no"), 7);
  EXPECT_EQ(m.at("minus"), -3);
  EXPECT_EQ(m.at("big"), uint64_t{1} << 60);
  EXPECT_EQ(m.at("eps").get<double>(), static_cast<double>(1e-5F));
  EXPECT_EQ(m.at("tokens"), Json::array({"a", "", "\xff"}));
  EXPECT_EQ(m.at("kinds"), Json::array({1, -2}));
  EXPECT_EQ(m.at("scores"), Json::array({0.5}));
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{3, 64}));
  EXPECT_EQ(header.tensors[0].dtype, DType::kQ4_1);
  EXPECT_EQ(header.tensors[0].bytes, 3 * 40U);
  EXPECT_EQ(header.tensors[1].offset % 64, 0U);
  float element = 0;
  std::memcpy(&element, file.data() + header.tensors[1].offset + 16, 4);
  EXPECT_EQ(element, 1.5F);
}

TEST(Gguf, ReadsVersionTwoNestedArraysAndScalars) {
  Raw raw(1, 1, 2);
  raw.string("nested").put(kArray).put(kArray).put<uint64_t>(2);
  raw.put(kU8).put<uint64_t>(1).put<uint8_t>(5);
  raw.put(kString).put<uint64_t>(1).string("x");
  raw.tensor("s", {}, 0, 0);
  const std::string file = raw.data(4);
  const GgufHeader header = parse_gguf(bytes_of(file), "m");
  EXPECT_EQ(header.metadata.at("nested").dump(), R"([[5],["x"]])");
  EXPECT_TRUE(header.tensors[0].shape.empty());
  EXPECT_EQ(header.tensors[0].bytes, 4U);
}

TEST(Gguf, EveryTypeHasItsNumber) {
  for (DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kI8, DType::kI32, DType::kI64, DType::kQ8_0,
        DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ2_K, DType::kQ3_K,
        DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS}) {
    EXPECT_EQ(ggml_type_name(ggml_type_of(dtype)), dtype_name(dtype));
  }
  EXPECT_EQ(ggml_type_name(16), "IQ2_XXS");
  EXPECT_EQ(ggml_type_name(99), "type 99");
}

struct BadFile {
  const char* what;
  std::string file;
  const char* message;
};

std::string deep_arrays(int depth) {
  Raw raw(0, 1);
  raw.string("k").put(kArray);
  for (int i = 0; i < depth; ++i) raw.put(kArray).put<uint64_t>(1);
  return raw.put(kU8).put<uint64_t>(0).end();
}

std::vector<BadFile> bad_metadata() {
  const uint64_t huge = ~uint64_t{0};
  return {
      {"empty", "", "not a GGUF file"},
      {"other magic", "GGML" + std::string(20, '\0'), "not a GGUF file"},
      {"magic only", "GGUF", "ends at byte 4, inside the version"},
      {"version 1", Raw(0, 0, 1).end(), "GGUF version 1, supported are 2 and 3"},
      {"version 4", Raw(0, 0, 4).end(), "GGUF version 4"},
      {"version 0", Raw(0, 0, 0).end(), "GGUF version 0"},
      {"big-endian", Raw(0, 0, 0x03000000).end(), "big-endian"},
      {"lying key count", Raw(0, huge).end(), "claims 18446744073709551615 metadata keys"},
      {"lying tensor count", Raw(huge, 0).end(), "claims 18446744073709551615 tensors"},
      {"lying key length", Raw(0, 1).put(huge).put<uint64_t>(0).end(),
       "metadata key 0 claims 18446744073709551615 bytes"},
      {"long key", Raw(0, 1).string(std::string(70000, 'k')).end(), "the limit is 65535"},
      {"key twice",
       Raw(0, 2)
           .string("k")
           .put(kBool)
           .put<uint8_t>(0)
           .string("k")
           .put(kBool)
           .put<uint8_t>(0)
           .end(),
       "'k' is there twice"},
      {"no value", Raw(0, 1).string("kkkkk").end(), "inside metadata 'kkkkk'"},
      {"value type", Raw(0, 1).string("k").put<uint32_t>(13).put<uint64_t>(0).end(),
       "value type 13, which GGUF does not have"},
      {"boolean of 2", Raw(0, 1).string("k").put(kBool).put<uint8_t>(2).end(),
       "boolean of value 2"},
      {"lying string", Raw(0, 1).string("k").put(kString).put(huge).end(),
       "'k' claims 18446744073709551615 bytes"},
      {"element type", Raw(0, 1).string("k").put(kArray).put<uint32_t>(77).put<uint64_t>(0).end(),
       "array of value type 77"},
      {"lying array of bytes", Raw(0, 1).string("k").put(kArray).put(kU8).put(huge).end(),
       "'k' claims 18446744073709551615 elements"},
      {"lying array of strings",
       Raw(0, 1).string("k").put(kArray).put(kString).put<uint64_t>(2).put<uint64_t>(0).end(),
       "'k' claims 2 elements, but only 8 bytes"},
      {"too deep", deep_arrays(4), "nests arrays deeper than 4"},
      {"alignment of 0", Raw(0, 1).string("general.alignment").put(kU32).put<uint32_t>(0).end(),
       "power of two of 8 or more, found 0"},
      {"alignment of 24", Raw(0, 1).string("general.alignment").put(kU32).put<uint32_t>(24).end(),
       "power of two"},
      {"alignment as text", Raw(0, 1).string("general.alignment").put(kString).string("32").end(),
       "power of two"},
  };
}

std::vector<BadFile> bad_tensors() {
  const uint64_t huge = ~uint64_t{0};
  const uint64_t half = uint64_t{1} << 62;
  return {
      {"dimensions", Raw(1).tensor("w", {1, 1, 1, 1, 1}, 0, 0).data(4),
       "'w' has 5 dimensions, at most 4"},
      {"lying dimensions", Raw(1).string("w").put<uint32_t>(0xffffffff).put(huge).put(huge).end(),
       "has 4294967295 dimensions"},
      {"dimension beyond 2^63", Raw(1).tensor("w", {huge}, 0, 0).data(4), "beyond 2^63"},
      {"size overflows", Raw(1).tensor("w", {half, 8}, 0, 0).data(4), "its size under 2^63"},
      {"bytes overflow", Raw(1).tensor("w", {half}, 0, 0).data(4), "its size under 2^63"},
      {"half a block", Raw(1).tensor("w", {48}, 8, 0).data(64), "whole blocks of 32 elements"},
      {"rows of half blocks", Raw(1).tensor("w", {16, 2}, 2, 0).data(64),
       "Q4_0[2, 16]: its rows must be whole blocks"},
      {"type by name", Raw(1).tensor("blk.0.w", {256}, 16, 0).data(64),
       "tensor 'blk.0.w' has type IQ2_XXS, which is not supported; supported are F32"},
      {"mxfp4", Raw(1).tensor("w", {256}, 39, 0).data(64), "type MXFP4"},
      {"removed type", Raw(1).tensor("w", {256}, 31, 0).data(64), "has type type 31"},
      {"unaligned", Raw(1).tensor("w", {1}, 0, 4).data(64), "no multiple of the alignment 32"},
      {"beyond the end", Raw(1).tensor("w", {16}, 0, 32).data(64),
       "takes 64 bytes at 32, but the file has only 64"},
      {"far beyond the end", Raw(1).tensor("w", {1}, 0, huge - 31).data(64),
       "takes 4 bytes at 18446744073709551584"},
      {"no data", Raw(1).tensor("w", {1}, 0, 0).end(), "ends before its tensor data"},
      {"twice", Raw(2).tensor("w", {1}, 0, 0).tensor("w", {1}, 0, 32).data(64),
       "'w' is there twice"},
      {"overlap", Raw(2).tensor("a", {16}, 0, 0).tensor("b", {16}, 0, 32).data(128),
       "'b' overlaps tensor 'a'"},
      {"the same bytes", Raw(2).tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 0).data(32), "overlaps"},
      {"control characters", Raw(1).tensor("a\nb\x1b[31m", {1}, 99, 0).data(32),
       "tensor 'a?b?[31m' has type"},
  };
}

void expect_messages(const std::vector<BadFile>& table) {
  for (const BadFile& bad : table) {
    const std::string message = message_of(bad.file);
    EXPECT_THAT(message, HasSubstr(bad.message)) << bad.what;
    EXPECT_THAT(message, HasSubstr("m.gguf: ")) << bad.what;
  }
}

TEST(Gguf, RefusesBadMetadata) { expect_messages(bad_metadata()); }
TEST(Gguf, RefusesBadTensors) { expect_messages(bad_tensors()); }

TEST(Gguf, RefusesMoreElementsThanItWouldHold) {
  Raw raw(0, 1);
  raw.string("k").put(kArray).put(kU8).put<uint64_t>((1 << 24) + 1);
  std::string file = raw.end();
  file.resize(file.size() + (1 << 24) + 1);
  EXPECT_THAT(message_of(file), HasSubstr("have more than 16777216 elements"));
}

TEST(Gguf, EveryTruncationIsRefused) {
  GgufWriter writer;
  writer.add_strings("tokens", {"a", "b"});
  writer.add_u32("n", 3);
  writer.add_tensor("w", Tensor::zeros({2, 32}, DType::kQ8_0));
  const std::string file = writer.serialize();
  const size_t padding = 32 - (2 * 34) % 32;
  EXPECT_EQ(message_of(file.substr(0, file.size() - padding)), "accepted");
  for (size_t n = 0; n < file.size() - padding; ++n)
    EXPECT_NE(message_of(file.substr(0, n)), "accepted") << n;
}

}  // namespace
}  // namespace tutti

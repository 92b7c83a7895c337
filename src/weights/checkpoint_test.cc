#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "weights/gguf_writer.h"
#include "weights/safetensors_writer.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

Tensor filled(int64_t rows, int64_t columns, float first) {
  Tensor t = Tensor::empty({rows, columns}, DType::kF32);
  for (int64_t i = 0; i < t.numel(); ++i) t.data_as<float>()[i] = first + static_cast<float>(i);
  return t;
}

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "checkpoint_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void shard(const std::string& name, const std::map<std::string, Tensor>& tensors) const {
    write_safetensors(path(name), tensors);
  }
  void part(const std::string& name, uint16_t number, uint16_t count, int32_t tensors,
            const std::string& tensor) const {
    GgufWriter writer;
    if (number == 0) writer.add_string("general.architecture", "llama");
    writer.add_u16("split.no", number);
    writer.add_u16("split.count", count);
    writer.add_i32("split.tensors.count", tensors);
    writer.add_tensor(tensor, filled(2, 4, number));
    writer.write(path(name));
  }
  void index(const std::string& weight_map) const {
    write_file(path("model.safetensors.index.json"), R"({"weight_map":)" + weight_map + "}");
  }
  std::string message(const std::string& where, LoadFormat format = LoadFormat::kAuto) const {
    try {
      Checkpoint::open(where, format);
    } catch (const IoError& e) {
      return e.what();
    }
    return "accepted";
  }
  std::string message() const { return message(folder_.string()); }

  fs::path folder_;
};

TEST_F(CheckpointTest, OpensShardsByTheIndex) {
  shard("1.safetensors", {{"a", filled(2, 3, 0)}, {"unused", filled(1, 1, 0)}});
  shard("2.safetensors", {{"b", filled(4, 2, 10)}});
  shard("consolidated.safetensors", {{"a", filled(2, 3, 99)}});
  index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  const auto checkpoint = Checkpoint::open(folder_.string());
  EXPECT_EQ(checkpoint->tensors().size(), 2U);
  EXPECT_EQ(checkpoint->files().size(), 2U);
  EXPECT_EQ(checkpoint->total_bytes(), 24 + 32);
  EXPECT_FALSE(checkpoint->is_gguf());
  EXPECT_EQ(checkpoint->find("c"), nullptr);
  const Tensor* b = checkpoint->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->describe(), "F32[4, 2]");
  EXPECT_EQ(b->row<float>(3)[1], 17.0F);
}

TEST_F(CheckpointTest, OpensFilesWithoutAnIndex) {
  shard("x.safetensors", {{"a", filled(2, 3, 0)}});
  shard("y.safetensors", {{"b", filled(4, 2, 10)}});
  EXPECT_EQ(Checkpoint::open(folder_.string())->tensors().size(), 2U);
  EXPECT_EQ(Checkpoint::open(path("y.safetensors"))->tensors().size(), 1U);
  shard("model.safetensors", {{"a", filled(2, 3, 0)}});
  EXPECT_EQ(Checkpoint::open(folder_.string())->files(),
            std::vector<std::string>{path("model.safetensors")});
}

TEST_F(CheckpointTest, TensorsOutliveTheCheckpoint) {
  shard("model.safetensors", {{"a", filled(2, 3, 5)}});
  const Tensor a = *Checkpoint::open(folder_.string())->find("a");
  EXPECT_EQ(a.row<float>(1)[2], 10.0F);
}

TEST_F(CheckpointTest, NamesTheMissingShardAndItsTensors) {
  shard("1.safetensors", {{"a", filled(2, 3, 0)}});
  index(
      R"({"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors","d":"2.safetensors","e":"2.safetensors"})");
  EXPECT_THAT(message(), HasSubstr("missing shard " + path("2.safetensors")));
  EXPECT_THAT(message(), HasSubstr("holds 'b', 'c', 'd' and 1 more"));
}

TEST_F(CheckpointTest, RefusesShardsThatDisagree) {
  shard("1.safetensors", {{"a", filled(2, 3, 0)}});
  index(R"({"a":"1.safetensors","b":"1.safetensors"})");
  EXPECT_THAT(
      message(),
      HasSubstr("1.safetensors: has no tensor 'b', which model.safetensors.index.json says"));
  fs::remove(path("model.safetensors.index.json"));
  shard("2.safetensors", {{"a", filled(2, 3, 0)}});
  EXPECT_THAT(message(), HasSubstr("2.safetensors: tensor 'a' is also in another file"));
}

TEST_F(CheckpointTest, RefusesFoldersWithoutWeights) {
  EXPECT_THAT(message(path("nowhere")), HasSubstr("no such model file or folder"));
  EXPECT_THAT(message(), HasSubstr("has no weights: expected *.safetensors or *.gguf"));
  write_file(path("pytorch_model.bin"), "x");
  EXPECT_THAT(message(), HasSubstr("PyTorch pickle files only"));
  shard("model.safetensors", {});
  EXPECT_THAT(message(), HasSubstr("hold no tensors"));
  EXPECT_THAT(message(folder_.string(), LoadFormat::kGguf),
              HasSubstr("expected *.gguf (--load-format gguf)"));
  write_file(path("model.safetensors"), "");
  EXPECT_THAT(message(), HasSubstr("the file is empty"));
}

TEST_F(CheckpointTest, OpensGgufAsFileOrFolder) {
  GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  writer.add_tensor("w", filled(2, 4, 1));
  writer.write(path("model.gguf"));
  for (const std::string& where : {folder_.string(), path("model.gguf")}) {
    const auto checkpoint = Checkpoint::open(where);
    EXPECT_TRUE(checkpoint->is_gguf());
    EXPECT_EQ(checkpoint->metadata().at("general.architecture"), "llama");
    EXPECT_EQ(checkpoint->find("w")->row<float>(1)[3], 8.0F);
  }
  EXPECT_THAT(message(path("model.gguf"), LoadFormat::kSafetensors), HasSubstr("is a GGUF file"));
  fs::rename(path("model.gguf"), path("blob"));  // caches name files by their hash
  EXPECT_TRUE(Checkpoint::open(path("blob"))->is_gguf());
}

TEST_F(CheckpointTest, OpensAllPartsFromAnyOfThem) {
  for (uint16_t i = 0; i < 3; ++i) {
    part("m-0000" + std::to_string(i + 1) + "-of-00003.gguf", i, 3, 3, "t" + std::to_string(i));
  }
  for (const std::string& where :
       {folder_.string(), path("m-00001-of-00003.gguf"), path("m-00003-of-00003.gguf")}) {
    const auto checkpoint = Checkpoint::open(where);
    EXPECT_EQ(checkpoint->tensors().size(), 3U);
    EXPECT_EQ(checkpoint->files().size(), 3U);
    EXPECT_EQ(checkpoint->metadata().at("general.architecture"), "llama");
  }
  fs::remove(path("m-00002-of-00003.gguf"));
  EXPECT_THAT(message(), HasSubstr("missing part " + path("m-00002-of-00003.gguf")));
  part("m-00002-of-00003.gguf", 2, 3, 3, "t1");
  EXPECT_THAT(message(), HasSubstr("is part 3 of 3 by its metadata, expected part 2 of 3"));
  part("m-00002-of-00003.gguf", 1, 3, 3, "t0");
  EXPECT_THAT(message(), HasSubstr("'t0' is also in another file"));
}

TEST_F(CheckpointTest, RefusesStrayParts) {
  part("renamed.gguf", 0, 2, 2, "a");
  EXPECT_THAT(message(), HasSubstr("its name must end in -0000N-of-00002.gguf"));
  fs::remove(path("renamed.gguf"));
  part("m-00001-of-00002.gguf", 0, 2, 3, "a");
  part("m-00002-of-00002.gguf", 1, 2, 3, "b");
  EXPECT_THAT(message(), HasSubstr("have 2 tensors together, expected 3"));
  part("other.gguf", 0, 1, 1, "a");
  EXPECT_THAT(
      message(),
      HasSubstr("has 2 GGUF models: 'm-00001-of-00002.gguf', 'other.gguf'; give the path of one"));
}

int64_t resident_file_kb() {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kb = -1;
  while (status >> word) {
    if (word == "RssFile:") status >> kb;
  }
  return kb;
}

TEST_F(CheckpointTest, ReleaseGivesPagesBackAndKeepsTheBytes) {
  const int64_t rows = 1024;
  const int64_t columns = 4096;  // 16 MiB
  shard("model.safetensors", {{"a", filled(1, 3, 0)}, {"w", filled(rows, columns, 0)}});
  const auto checkpoint = Checkpoint::open(folder_.string());
  const Tensor w = *checkpoint->find("w");
  float sum = 0;
  for (int64_t r = 0; r < rows; ++r) sum += w.row<float>(r)[r];
  EXPECT_GT(sum, 0);
  const int64_t before = resident_file_kb();
  checkpoint->release(w);
  EXPECT_LT(resident_file_kb(), before - 8 * 1024);
  EXPECT_EQ(w.row<float>(rows - 1)[columns - 1], static_cast<float>(rows * columns - 1));

  checkpoint->release(w.slice(1, 7, 9).slice(0, 3, 5));  // odd begin, odd end, strided
  checkpoint->release(w.slice(0, 0, 0));
  checkpoint->release(Tensor::zeros({4}, DType::kF32));  // not of this checkpoint
  EXPECT_EQ(w.row<float>(5)[9], static_cast<float>(5 * columns + 9));
}

}  // namespace
}  // namespace tutti

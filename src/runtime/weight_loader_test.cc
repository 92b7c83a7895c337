#include "runtime/weight_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "models/decoder.h"
#include "runtime/dummy_weights.h"
#include "runtime/fp8_weights.h"
#include "runtime/rank_memory.h"
#include "tensor/half.h"
#include "weights/safetensors_writer.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Json tiny_json() {
  return {{"architectures", {"LlamaForCausalLM"}}, {"hidden_size", 64},          {"intermediate_size", 128},
          {"num_hidden_layers", 2},                {"num_attention_heads", 4},   {"num_key_value_heads", 2},
          {"vocab_size", 100},                     {"rms_norm_eps", 1e-5},       {"torch_dtype", "float32"},
          {"max_position_embeddings", 64},         {"tie_word_embeddings", true}};
}

class WeightLoader : public testing::Test {
 protected:
  WeightLoader() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-loader-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    write_file(folder_ + "/config.json", dump_json(tiny_json()));
    const ModelSource dummy = open_model(folder_, "dummy");
    const DecoderModel model(dummy.config, partition_tensors(dummy.config, {}, 0), *self_, {0, 2}, 8);
    for (const ParameterSlot& slot : model.parameters().slots()) {
      for (const Parameter& p : slot.pieces) tensors_[dummy.file_name(p.name)] = dummy_values(p, pool_);
    }
  }
  ~WeightLoader() override { std::filesystem::remove_all(folder_); }

  void load() {
    write_safetensors(folder_ + "/model.safetensors", tensors_);
    const ModelSource source = open_model(folder_);
    const DecoderModel model(source.config, partition_tensors(source.config, {}, 0), *self_, {0, 2}, 8);
    int64_t last = 0;
    load_weights(source, ctx_, model.parameters(), [&](int64_t done, int64_t total) {
      EXPECT_GT(done, last);
      EXPECT_LE(done, total);
      last = done;
    });
    EXPECT_EQ(last, parameter_bytes(source, model.parameters()));
  }

  std::string folder_;
  ThreadPool pool_{2};
  Arena arena_{1 << 20, Device::cpu()};
  Context ctx_{Device::cpu(), &pool_, &arena_};
  std::unique_ptr<Communicator> self_ = make_self_communicator();
  std::map<std::string, Tensor> tensors_;
};

TEST_F(WeightLoader, ReportsProgressToTheEnd) { EXPECT_NO_THROW(load()); }

TEST_F(WeightLoader, MissingTensorsAreNamed) {
  tensors_.erase("model.layers.1.mlp.up_proj.weight");
  EXPECT_THAT([&] { load(); }, ThrowsMessage<IoError>(AllOf(HasSubstr("tensor model.layers.1.mlp.up_proj.weight is missing"),
                                                           HasSubstr("is the download complete?"))));
}

TEST_F(WeightLoader, WrongShapesAreNamed) {
  tensors_["model.layers.0.self_attn.k_proj.weight"] = Tensor::zeros({64, 64}, DType::kF32);
  EXPECT_THAT([&] { load(); },
              ThrowsMessage<IoError>(HasSubstr("k_proj.weight is F32[64, 64], but the configuration asks for [32, 64]")));
}

TEST_F(WeightLoader, WrongTypesAreNamed) {
  tensors_["model.layers.0.input_layernorm.weight"] = Tensor::zeros({64}, DType::kI32);
  EXPECT_THAT([&] { load(); }, ThrowsMessage<IoError>(AllOf(HasSubstr("input_layernorm.weight is of type I32"), HasSubstr("expected F32"))));
}

Tensor fp8_codes(int64_t rows, int64_t columns) {
  Tensor t = Tensor::empty({rows, columns}, DType::kF8E4M3);
  for (int64_t i = 0; i < rows * columns; ++i) t.data_as<uint8_t>()[i] = static_cast<uint8_t>(i * 37 % 0x7f | (i % 3 == 0 ? 0x80 : 0));
  return t;
}

Tensor rising(std::initializer_list<int64_t> shape) {
  Tensor t = Tensor::empty(shape, DType::kF32);
  for (int64_t i = 0; i < t.numel(); ++i) t.data_as<float>()[i] = 0.5f + static_cast<float>(i);
  return t;
}

TEST_F(WeightLoader, Fp8IsWidenedWithItsScales) {
  const std::string weight = "model.layers.0.mlp.up_proj.weight";
  const Tensor codes = tensors_[weight] = fp8_codes(256, 300);
  struct Case {
    const char* suffix;
    Tensor scales;
    std::function<float(int64_t, int64_t)> expected;
  };
  const Case cases[] = {{"_scale", rising({1}), [](int64_t, int64_t) { return 0.5f; }},
                        {"_scale", rising({256, 1}), [](int64_t r, int64_t) { return 0.5f + static_cast<float>(r); }},
                        {"_scale_inv", rising({2, 3}), [](int64_t r, int64_t c) { return 0.5f + static_cast<float>(r / 128 * 3 + c / 128); }}};
  for (const Case& c : cases) {
    tensors_.erase(weight + "_scale");
    tensors_[weight + c.suffix] = c.scales;
    write_safetensors(folder_ + "/model.safetensors", tensors_);
    const ModelSource source = open_model(folder_);
    for (const ShardRule& shard : {ShardRule::whole(), ShardRule::rows({100, 60}), ShardRule::columns({40, 200})}) {
      const Parameter parameter{"layers.0.mlp.up.weight", 256, 300, shard};
      ASSERT_TRUE(source.stored_as_fp8(parameter));
      const bool rows = shard.dim == ShardRule::Dim::kRows, columns = shard.dim == ShardRule::Dim::kColumns;
      const int64_t first_row = rows ? 100 : 0, first_column = columns ? 40 : 0;
      const Tensor piece = rows ? codes.slice(0, 100, 60) : columns ? codes.slice(1, 40, 200) : codes;
      const Tensor wide = widen_fp8(piece, read_fp8_scales(source, parameter), DType::kF32, pool_);
      for (int64_t r = 0; r < wide.size(0); ++r) {
        for (int64_t k = 0; k < wide.size(1); ++k) {
          const float code = float8_e4m3_to_float(piece.row<uint8_t>(r)[k]);
          ASSERT_EQ(wide.row<float>(r)[k], code * c.expected(first_row + r, first_column + k)) << c.suffix << r << ", " << k;
        }
      }
    }
  }
}

TEST_F(WeightLoader, Fp8WithoutScalesOrWithOthersIsRefused) {
  const std::string weight = "model.layers.0.mlp.up_proj.weight";
  tensors_[weight] = fp8_codes(128, 64);
  EXPECT_THAT([&] { load(); }, ThrowsMessage<IoError>(AllOf(HasSubstr(weight + " is F8_E4M3"), HasSubstr("without scales"))));
  tensors_[weight + "_scale"] = rising({7});
  EXPECT_THAT([&] { load(); }, ThrowsMessage<IoError>(AllOf(HasSubstr(weight + "_scale is F32[7]"), HasSubstr("each of 128 rows"))));
  tensors_[weight + "_scale"] = rising({128});
  EXPECT_NO_THROW(load());
  Json json = tiny_json();
  json["quantization_config"] = {{"quant_method", "awq"}};
  write_file(folder_ + "/config.json", dump_json(json));
  EXPECT_THAT([&] { load(); }, ThrowsMessage<ConfigError>(HasSubstr("quant_method awq")));
}

TEST_F(WeightLoader, FoldersWithoutAModelSayWhatIsNeeded) {
  std::filesystem::remove(folder_ + "/config.json");
  write_safetensors(folder_ + "/model.safetensors", tensors_);
  EXPECT_THAT([&] { open_model(folder_); }, ThrowsMessage<IoError>(HasSubstr("a model is a folder with config.json")));
  EXPECT_THAT([&] { open_model(folder_, "pt"); }, ThrowsMessage<ConfigError>(HasSubstr("--load-format pt is not one of")));
  EXPECT_THAT([&] { open_model(folder_, "auto", "int3"); }, ThrowsMessage<ConfigError>(HasSubstr("--dtype int3 is not one of")));
}

TEST(DummyWeights, PartsAreThoseOfTheWhole) {
  ThreadPool pool(2);
  const Parameter whole{"layers.0.mlp.down.weight", 40, 96, ShardRule::whole()};
  Parameter rows = whole, columns = whole;
  rows.shard = ShardRule::rows({8, 16});
  columns.shard = ShardRule::columns({32, 64});
  const Tensor all = dummy_values(whole, pool), some_rows = dummy_values(rows, pool), some_columns = dummy_values(columns, pool);
  double squares = 0.0;
  for (int64_t r = 0; r < 40; ++r) {
    for (int64_t c = 0; c < 96; ++c) {
      const float value = all.row<float>(r)[c];
      squares += value * value;
      if (r >= 8 && r < 24) {
        EXPECT_EQ(some_rows.row<float>(r - 8)[c], value);
      }
      if (c >= 32) {
        EXPECT_EQ(some_columns.row<float>(r)[c - 32], value);
      }
    }
  }
  EXPECT_NEAR(std::sqrt(squares / (40 * 96)), 1.0 / std::sqrt(96.0), 0.005);
}

TEST(KvCacheSize, TooSmallForOneSequenceSaysWhatToDo) {
  const KVCacheShape shape{2, 2, 64, 16, DType::kF32};
  CacheConfig cache;
  SchedulerConfig scheduler;
  scheduler.max_model_len = 1000;
  scheduler.max_num_seqs = 2;
  cache.kv_cache_memory_bytes = 10 * shape.bytes_per_block();
  EXPECT_THAT([&] { choose_num_blocks(shape, cache, scheduler); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("needs 63 blocks"), HasSubstr("--kv-cache-memory-bytes 320K has room for 10"),
                                               HasSubstr("Say --kv-cache-memory-bytes 2M, or --max-model-len 160"))));
  cache.kv_cache_memory_bytes = int64_t{2} << 20;
  EXPECT_EQ(choose_num_blocks(shape, cache, scheduler), 64);  // what the text says is enough
  cache.kv_cache_memory_bytes.reset();
  cache.num_blocks_override = 10;
  EXPECT_THAT([&] { choose_num_blocks(shape, cache, scheduler); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("--num-gpu-blocks-override 10 has room for 10"),
                                               HasSubstr("Say --num-gpu-blocks-override 63, or --max-model-len 160"))));
  cache.num_blocks_override.reset();
  EXPECT_EQ(choose_num_blocks(shape, cache, scheduler), 2 * 63);  // never more than the scheduler can use
  cache.num_blocks_override = 70;
  EXPECT_EQ(choose_num_blocks(shape, cache, scheduler), 70);
  EXPECT_THAT([] { kv_cache_dtype("fp4", DType::kF32); }, ThrowsMessage<ConfigError>(HasSubstr("--kv-cache-dtype fp4 is not one of")));
}

// --max-model-len -1: what there is decides, not the model's own length.
TEST(KvCacheSize, ALengthThatShallFitAsksForOneBlock) {
  const KVCacheShape shape{2, 2, 64, 16, DType::kF32};
  CacheConfig cache;
  SchedulerConfig scheduler;
  scheduler.max_model_len = 1000;
  scheduler.max_num_seqs = 2;
  scheduler.fit_max_model_len = true;
  EXPECT_EQ(choose_num_blocks(shape, cache, scheduler, 10 * shape.bytes_per_block()), 10);  // a GPU's memory that is left
  EXPECT_EQ(choose_num_blocks(shape, cache, scheduler), 2 * 63);
  EXPECT_THAT([&] { choose_num_blocks(shape, cache, scheduler, shape.bytes_per_block() - 1); },
              ThrowsMessage<ConfigError>(HasSubstr("one sequence of 16 tokens (--max-model-len) needs 1 blocks")));
}

}  // namespace
}  // namespace tutti

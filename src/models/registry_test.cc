#include "models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Json llama_json() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 100},
          {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5}};
}

ModelConfig read(const Json& json) { return find_hf_family(json, "config.json").read_hf(json, "config.json"); }

TEST(Registry, UnknownArchitectureNamesTheNearest) {
  EXPECT_THAT([] { find_hf_family({{"architectures", {"Qwen4ForCausalLM"}}}, "config.json"); },
              ThrowsMessage<ConfigError>(HasSubstr("not supported: Qwen4ForCausalLM; nearest: Qwen")));
  EXPECT_THAT([] { find_gguf_family({{"general.architecture", "lama"}}, "x.gguf"); },
              ThrowsMessage<ConfigError>(HasSubstr("not supported: lama; nearest: llama")));
  EXPECT_THAT([] { find_hf_family(Json::object(), "config.json"); }, ThrowsMessage<ConfigError>(HasSubstr("\"architectures\" is missing")));
}

TEST(Registry, EveryFamilyNamesEveryParameter) {
  for (const Family* family : model_families()) {
    EXPECT_EQ(family->hf_name("embed.weight"), "model.embed_tokens.weight");
    EXPECT_EQ(family->hf_name("layers.12.attention.q.bias"), "model.layers.12.self_attn.q_proj.bias");
    EXPECT_EQ(family->gguf_name("layers.12.mlp.down.weight"), "blk.12.ffn_down.weight");
    EXPECT_EQ(family->gguf_name("head.weight"), "output.weight");
  }
}

TEST(Config, MissingAndWrongValuesNameTheKey) {
  Json json = llama_json();
  json.erase("hidden_size");
  EXPECT_THAT([&] { read(json); }, ThrowsMessage<ConfigError>(HasSubstr("\"hidden_size\" is missing")));
  json["hidden_size"] = "large";
  EXPECT_THAT([&] { read(json); }, ThrowsMessage<ConfigError>(HasSubstr("\"hidden_size\" must be an integer, found \"large\"")));
  json["hidden_size"] = -1;
  EXPECT_THAT([&] { read(json); }, ThrowsMessage<ConfigError>(HasSubstr("\"hidden_size\" is -1")));
  json = llama_json();
  json["num_key_value_heads"] = 3;
  EXPECT_THAT([&] { read(json); }, ThrowsMessage<ConfigError>(HasSubstr("cannot share 3 KV heads evenly")));
  json = llama_json();
  json["hidden_act"] = "gelu";
  EXPECT_THAT([&] { read(json); }, ThrowsMessage<ConfigError>(HasSubstr("hidden_act not supported: gelu; nearest: silu")));
}

TEST(Config, DefaultsThatOldFilesLeaveOut) {
  Json json = llama_json();
  json.erase("num_key_value_heads");
  const ModelConfig config = read(json);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rope.rotary_dim, 16);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_FALSE(config.tie_word_embeddings);
}

TEST(Config, BothSpellingsOfRopeScaling) {
  Json old_style = llama_json();
  old_style["rope_theta"] = 500000.0;
  old_style["rope_scaling"] = {{"type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},
                               {"original_max_position_embeddings", 64}};
  Json new_style = llama_json();
  new_style["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0},
                                  {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 64}};
  for (const Json& json : {old_style, new_style}) {
    const RopeConfig rope = read(json).rope;
    EXPECT_EQ(rope.theta, 500000.0);
    EXPECT_EQ(rope.scaling, RopeScalingType::kLlama3);
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.original_max_position, 64);
  }
  old_style["rope_scaling"]["type"] = "spiral";
  EXPECT_THAT([&] { read(old_style); }, ThrowsMessage<ConfigError>(HasSubstr("rope scaling not supported: spiral")));
}

TEST(Config, YarnExtendsTheContext) {
  Json json = llama_json();
  json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
  EXPECT_EQ(read(json).max_position_embeddings, 2048);
}

TEST(Config, QwenWindowsCountOnlyWhenUsed) {
  Json json = llama_json();
  json["architectures"] = {"Qwen2ForCausalLM"};
  json["sliding_window"] = 32;
  json["max_window_layers"] = 1;
  json["use_sliding_window"] = false;
  EXPECT_EQ(read(json).sliding_window, 0);
  EXPECT_TRUE(read(json).qkv_bias);
  json["use_sliding_window"] = true;
  EXPECT_EQ(read(json).sliding_window, 32);
  EXPECT_EQ(read(json).first_sliding_layer, 1);
}

TEST(Config, PositionsFitThirtyTwoBits) {
  for (const int64_t positions : {int64_t{0}, int64_t{-1}, int64_t{1} << 31, int64_t{1'000'000'000'000'000'000}}) {
    Json json = llama_json();
    json["max_position_embeddings"] = positions;
    EXPECT_THAT([&] { read(json); }, ThrowsMessage<ConfigError>(HasSubstr("\"max_position_embeddings\" is " + std::to_string(positions))));
  }
}

TEST(Config, GgufLlamaRotatesNeighbours) {
  const Json metadata = {{"general.architecture", "llama"},
                         {"llama.embedding_length", 576},
                         {"llama.feed_forward_length", 1536},
                         {"llama.block_count", 30},
                         {"llama.attention.head_count", 9},
                         {"llama.attention.head_count_kv", 3},
                         {"llama.attention.layer_norm_rms_epsilon", 1e-5},
                         {"llama.context_length", 8192},
                         {"llama.rope.freq_base", 100000.0},
                         {"llama.vocab_size", 49152},
                         {"tokenizer.ggml.eos_token_id", 2}};
  const ModelConfig config = find_gguf_family(metadata, "x.gguf").read_gguf(metadata, "x.gguf");
  EXPECT_EQ(config.rope.layout, RopeLayout::kInterleaved);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.eos_token_ids, std::vector<int32_t>{2});
}

}  // namespace
}  // namespace tutti

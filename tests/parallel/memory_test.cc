// What a rank really holds after loading, measured in a process of its own: a share of the weights, not all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "parallel/thread_cluster.h"
#include "parallel/tiny_model.h"
#include "models/registry.h"
#include "runtime/rank_memory.h"
#include "weights/safetensors_writer.h"

namespace tutti::testing {
namespace {

// The process's share of the pages it maps, in bytes.
int64_t proportional_set_size() {
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t kib = 0;
    if (words >> key >> kib && key == "Pss:") return kib * 1024;
  }
  return 0;
}

// A tensor-parallel rank alone: its collectives give its own part, which is all that loading needs.
class LonelyRank : public Communicator {
 public:
  LonelyRank(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view transport() const override { return "lonely"; }
  void all_reduce(void*, int64_t, DType) override {}
  bool all_reduce_add_norm(const SumAddNorm&) override { return false; }
  const cuda_ipc::IpcGroup* sum_in_kernel(int64_t) override { return nullptr; }
  void all_gather(const void* send, void* recv, size_t bytes) override {
    for (int r = 0; r < size_; ++r) std::memcpy(static_cast<std::byte*>(recv) + static_cast<size_t>(r) * bytes, send, bytes);
  }
  void reduce_scatter(const void*, void*, int64_t, DType) override {}
  void broadcast(void*, size_t, int) override {}
  void all_to_all(const void*, void*, size_t) override {}
  void send(const void*, size_t, int) override {}
  void recv(void*, size_t, int) override {}
  void barrier() override {}
  void finish() override {}
  void watch() override {}
  void set_timeout(std::chrono::nanoseconds) override {}
  void abort(const std::string&) override {}
  CommStats stats() const override { return {}; }

 private:
  int rank_;
  int size_;
};

// How much a process grows when it loads this rank.
int64_t growth_of_rank(const std::string& path, int tp, int rank) {
  int fds[2];
  CHECK_EQ(pipe(fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    EngineConfig engine = test_engine(path, tp);
    ParallelGroups groups{nullptr, std::make_unique<LonelyRank>(rank, tp), make_self_communicator()};
    const int64_t before = proportional_set_size();
    Worker worker(engine, rank, std::move(groups));
    worker.load();
    const int64_t growth = proportional_set_size() - before;
    const bool sent = write(fds[1], &growth, sizeof growth) == sizeof growth;
    _exit(sent ? 0 : 1);
  }
  int64_t growth = 0;
  CHECK_EQ(read(fds[0], &growth, sizeof growth), static_cast<ssize_t>(sizeof growth));
  int status = 0;
  waitpid(child, &status, 0);
  close(fds[0]);
  close(fds[1]);
  return growth;
}

Json large_config() {
  Json config = tiny_config();
  config["hidden_size"] = 512;
  config["intermediate_size"] = 2048;
  config["num_attention_heads"] = 16;
  config["num_key_value_heads"] = 4;
  config["num_hidden_layers"] = 4;
  config["vocab_size"] = 8192;
  config["tie_word_embeddings"] = false;
  return config;
}

// A real file, as made-up weights are never mapped.
void write_weights(const std::string& folder, const Json& json) {
  const Family& family = find_hf_family(json, folder);
  const ModelConfig config = family.read_hf(json, folder);
  const auto self = make_self_communicator();
  const ParallelConfig one;
  const DecoderModel model(config, partition_tensors(config, one, 0), *self, {0, config.num_layers}, 1);
  std::map<std::string, Tensor> tensors;
  for (const ParameterSlot& slot : model.parameters().slots()) {
    for (const Parameter& p : slot.pieces) {
      Tensor t = p.is_vector() ? Tensor::empty({p.rows}, DType::kF32) : Tensor::empty({p.rows, p.columns}, DType::kF32);
      std::fill_n(t.data_as<float>(), t.numel(), 0.01f);
      tensors[family.hf_name(p.name)] = t;
    }
  }
  write_safetensors(folder + "/model.safetensors", tensors);
}

TEST(RankMemory, WeightsAreOneNthPlusWhatIsReplicated) {
  const TinyModel model(large_config());
  write_weights(model.path(), large_config());
  const ModelSource source = open_model(model.path());
  const auto alone = estimate_memory(source, test_engine(model.path(), 1)).front();
  ASSERT_GT(alone.weights, 60 << 20);
  constexpr int64_t kSlack = 6 << 20;  // code, libraries' and the communicator's own pages, page rounding
  for (int tp : {1, 2, 4}) {
    const auto estimates = estimate_memory(source, test_engine(model.path(), tp));
    for (int rank : {0, tp - 1}) {
      SCOPED_TRACE(::testing::Message() << "rank " << rank << " of " << tp);
      EXPECT_LT(estimates[static_cast<size_t>(rank)].weights, alone.weights / tp + (1 << 20));
      const int64_t growth = growth_of_rank(model.path(), tp, rank);
      EXPECT_LT(growth, estimates[static_cast<size_t>(rank)].weights + kSlack);
      EXPECT_GT(growth, estimates[static_cast<size_t>(rank)].weights - kSlack);
    }
  }
}

TEST(RankMemory, TooLargeIsSaidWithTheSum) {
  const TinyModel model(large_config());
  write_weights(model.path(), large_config());
  const ModelSource source = open_model(model.path());
  const EngineConfig engine = test_engine(model.path(), 2);
  const auto estimates = estimate_memory(source, engine);
  const int64_t both = estimates[0].total() + estimates[1].total();
  EXPECT_NO_THROW(check_fits(source, engine, {0, 1}, both));
  EXPECT_THAT([&] { check_fits(source, engine, {0, 1}, both - 1); },
              ::testing::ThrowsMessage<ConfigError>(::testing::AllOf(::testing::HasSubstr("does not fit: 2 ranks"),
                                                                     ::testing::HasSubstr("weights 0.0"))));
  EXPECT_NO_THROW(check_fits(source, engine, {1}, both - 1));
}

// A stage with more layers has larger blocks: the value that the text gives is enough for all ranks.
TEST(RankMemory, ACacheThatIsTooSmallIsFoundBeforeRanksStart) {
  const TinyModel model(large_config());
  write_weights(model.path(), large_config());
  const ModelSource source = open_model(model.path());
  EngineConfig engine = test_engine(model.path(), 1);
  engine.cache.num_blocks_override = 1;
  constexpr int64_t kPlenty = int64_t{1} << 40;
  EXPECT_THAT([&] { check_fits(source, engine, {0}, kPlenty); },
              ::testing::ThrowsMessage<ConfigError>(::testing::AllOf(
                  ::testing::HasSubstr("--num-gpu-blocks-override 1 has room for 1. Say --num-gpu-blocks-override "),
                  ::testing::HasSubstr(", or --max-model-len 16"))));
  engine.scheduler.max_model_len = 16;
  EXPECT_NO_THROW(check_fits(source, engine, {0}, kPlenty));
}

// What a GPU has left for KV is known once it has loaded; the CPU's part is known before.
TEST(RankMemory, ALengthThatShallFitNeedsWhatTheCacheGets) {
  const TinyModel model(large_config());
  write_weights(model.path(), large_config());
  const ModelSource source = open_model(model.path());
  EngineConfig engine = test_engine(model.path(), 1);
  engine.scheduler.max_model_len = 1 << 20;
  const int64_t whole = estimate_memory(source, engine).front().kv_cache;
  const int64_t block = whole / (1 << 20) * engine.cache.block_size;
  engine.scheduler.fit_max_model_len = true;
  engine.cache.num_blocks_override.reset();
  engine.cache.kv_cache_memory_bytes = 10 * block;
  EXPECT_EQ(estimate_memory(source, engine).front().kv_cache, 10 * block);
  engine.device = "cuda";
  EXPECT_EQ(estimate_memory(source, engine).front().kv_cache, block);
}

}  // namespace
}  // namespace tutti::testing

#include "nn/partition.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace tutti {
namespace {

constexpr int kActivationBlock = 32;  // elements that share a scale when they cross between ranks

// deal_units() with at least one unit a rank: very unequal shares may round a rank down to nothing.
std::vector<int> deal_at_least_one(int64_t units, int parts, const std::vector<int>& shares) {
  CHECK_GE(units, parts);
  std::vector<int> offsets = deal_units(static_cast<int>(units), parts, shares);
  for (int p = 1; p < parts; ++p) offsets[p] = std::max(offsets[p], offsets[p - 1] + 1);
  for (int p = parts - 1; p >= 1; --p) offsets[p] = std::min(offsets[p], offsets[p + 1] - 1);
  return offsets;
}

Range deal(int64_t units, int64_t unit, int64_t total, const ParallelConfig& parallel, int rank) {
  const auto offsets = deal_at_least_one(units, parallel.tensor_parallel_size, parallel.tensor_split);
  const int64_t begin = std::min(offsets[rank] * unit, total);
  return {begin, std::min(offsets[rank + 1] * unit, total) - begin};
}

[[noreturn]] void too_many_ranks(const ParallelConfig& parallel, const std::string& what, int64_t units) {
  throw ConfigError("--tensor-parallel-size " + std::to_string(parallel.tensor_parallel_size) + " is too large for this model: " +
                    what + " can be cut into " + std::to_string(units) + " parts at most. Use " + std::to_string(units) +
                    " or less, and --pipeline-parallel-size for the other ranks");
}

// A rank takes whole KV heads with all their query heads.
void deal_kv_heads(const ModelConfig& model, const ParallelConfig& parallel, int block, TensorPartition& cut) {
  const int64_t group = model.num_heads / model.num_kv_heads;
  const int64_t width = group * model.head_dim;  // inputs of the output projection behind one KV head
  const int64_t unit = std::lcm<int64_t>(width, block) / width;
  const int64_t units = (model.num_kv_heads + unit - 1) / unit;
  if (units < cut.size) {
    too_many_ranks(parallel, "attention (" + std::to_string(model.num_kv_heads) + " KV heads, quantisation blocks of " +
                                 std::to_string(block) + ")", units);
  }
  cut.kv_heads = deal(units, unit, model.num_kv_heads, parallel, cut.rank);
  cut.heads = cut.kv_heads.times(group);
}

// More ranks than KV heads: each KV head goes to several ranks, which share its query heads.
void deal_query_heads(const ModelConfig& model, const ParallelConfig& parallel, int block, TensorPartition& cut) {
  const int group = model.num_heads / model.num_kv_heads;
  const int64_t unit = std::lcm<int64_t>(model.head_dim, block) / model.head_dim;
  const int64_t units = (group + unit - 1) / unit;  // of one KV head
  const auto ranks = deal_units(cut.size, model.num_kv_heads);
  const auto next = std::upper_bound(ranks.begin(), ranks.end(), cut.rank);
  const int kv_head = static_cast<int>(next - ranks.begin()) - 1;
  const int first = ranks[kv_head];
  int most = 0;  // ranks that share one KV head
  for (int h = 0; h < model.num_kv_heads; ++h) most = std::max(most, ranks[h + 1] - ranks[h]);
  if (units < most) {
    too_many_ranks(parallel, "attention (" + std::to_string(model.num_heads) + " heads)", units * model.num_kv_heads);
  }
  std::vector<int> shares;
  if (!parallel.tensor_split.empty()) {
    shares.assign(parallel.tensor_split.begin() + first, parallel.tensor_split.begin() + ranks[kv_head + 1]);
  }
  const auto offsets = deal_at_least_one(units, ranks[kv_head + 1] - first, shares);
  const int64_t begin = std::min<int64_t>(offsets[cut.rank - first] * unit, group);
  const int64_t end = std::min<int64_t>(offsets[cut.rank - first + 1] * unit, group);
  cut.kv_heads = {kv_head, 1};
  cut.heads = {kv_head * group + begin, end - begin};
}

TensorPartition partition_one(const ModelConfig& model, const ParallelConfig& parallel, int tp_rank, QuantBlocks blocks) {
  TensorPartition cut;
  cut.rank = tp_rank;
  cut.size = parallel.tensor_parallel_size;
  CHECK(tp_rank >= 0 && tp_rank < cut.size);
  if (model.num_kv_heads >= cut.size) {
    deal_kv_heads(model, parallel, blocks.attention_output, cut);
  } else {
    deal_query_heads(model, parallel, blocks.attention_output, cut);
  }

  // Columns of a plain type may be cut anywhere; 32 keep vector kernels whole where there are enough of them.
  int64_t unit = blocks.down;
  if (unit == 1) {
    unit = 32;
    while (unit > 1 && (model.intermediate_size % unit != 0 || model.intermediate_size / unit < cut.size)) unit /= 2;
  }
  const int64_t ffn_units = (model.intermediate_size + unit - 1) / unit;
  if (ffn_units < cut.size) {
    too_many_ranks(parallel, "the feed-forward block (" + std::to_string(model.intermediate_size) +
                                 " columns in blocks of " + std::to_string(unit) + ")", ffn_units);
  }
  cut.ffn = deal(ffn_units, unit, model.intermediate_size, parallel, tp_rank);

  int64_t rows = 64;
  while (rows > 1 && (model.vocab_size + rows - 1) / rows < cut.size) rows /= 4;
  const int64_t vocab_units = (model.vocab_size + rows - 1) / rows;
  if (vocab_units < cut.size) too_many_ranks(parallel, "the vocabulary", vocab_units);
  cut.vocab = deal(vocab_units, rows, model.vocab_size, parallel, tp_rank);
  return cut;
}

}  // namespace

TensorPartition partition_tensors(const ModelConfig& model, const ParallelConfig& parallel, int tp_rank, QuantBlocks blocks,
                                  OutputCut output) {
  if (output == OutputCut::kRows) {
    blocks.attention_output = std::min(blocks.attention_output, kActivationBlock);
    blocks.down = std::min(blocks.down, kActivationBlock);
  }
  TensorPartition cut = partition_one(model, parallel, tp_rank, blocks);
  cut.output = output;
  int64_t rows = 32;  // of the kernels' panels
  while (rows > 1 && (model.hidden_size + rows - 1) / rows < cut.size) rows /= 2;
  const int64_t units = (model.hidden_size + rows - 1) / rows;
  if (units < cut.size) too_many_ranks(parallel, "the hidden size", units);
  for (int r = 0; r < cut.size; ++r) {
    const TensorPartition other = partition_one(model, parallel, r, blocks);
    cut.all_heads.push_back(other.heads);
    cut.all_ffn.push_back(other.ffn);
    cut.all_hidden.push_back(deal(units, rows, model.hidden_size, parallel, r));
  }
  return cut;
}

}  // namespace tutti

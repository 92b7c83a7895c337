// Projections over a group of ranks: gathered ones give the bits of a single rank, partial sums the same up to rounding.
#include "nn/output_projection.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "comm/comm_testing.h"
#include "ops/ops.h"
#include "tensor/half.h"
#include "tensor/quantize.h"

namespace tutti {
namespace {

constexpr int64_t kTokens = 5;

ModelConfig make_model() {
  ModelConfig model;
  model.vocab_size = 256;
  model.hidden_size = 160;
  model.intermediate_size = 416;
  model.num_layers = 1;
  model.num_heads = 9;
  model.num_kv_heads = 3;
  model.head_dim = 32;
  return model;
}

class Projections : public testing::TestWithParam<DType> {
 protected:
  Projections() {
    std::mt19937 random(std::random_device{}());
    std::normal_distribution<float> normal;
    const int64_t in = model_.intermediate_size;
    weight_ = Tensor::empty({model_.hidden_size, in}, GetParam());
    std::vector<float> row(static_cast<size_t>(in));
    for (int64_t r = 0; r < model_.hidden_size; ++r) {
      for (float& v : row) v = normal(random);
      quantize_row(row.data(), in, GetParam(), weight_.row<std::byte>(r));
    }
    x_ = Tensor::empty({kTokens, in}, DType::kF32);
    for (int64_t i = 0; i < x_.numel(); ++i) x_.data_as<float>()[i] = normal(random);
  }

  // What every rank gets, summed where it is partial.
  std::vector<float> run(Communicator& tp, OutputCut output) const {
    ParallelConfig parallel{.tensor_parallel_size = tp.size()};
    const int block = is_quantized(GetParam()) ? 32 : 1;
    const TensorPartition cut = partition_tensors(model_, parallel, tp.rank(), {block, block}, output);
    ParameterList parameters;
    const BuildContext build{model_, cut, tp, parameters};
    const auto projection =
        make_output_projection(build, "down", model_.intermediate_size, model_.hidden_size, cut.all_ffn, false);
    ThreadPool pool(1);
    Arena arena(size_t{8} << 20, Device::cpu());
    const Context ctx{.pool = &pool, .arena = &arena};
    const Parameter& declared = parameters.slots().at(0).pieces.at(0);
    Tensor piece = weight_;
    if (declared.shard.dim == ShardRule::Dim::kRows) piece = piece.slice(0, declared.shard.range.begin, declared.shard.range.count);
    if (declared.shard.dim == ShardRule::Dim::kColumns) piece = piece.slice(1, declared.shard.range.begin, declared.shard.range.count);
    *parameters.slots()[0].matrix = ops::pack_weight(ctx, {{piece}});
    const Range mine = cut.all_ffn[static_cast<size_t>(tp.rank())];
    std::vector<float> out(static_cast<size_t>(kTokens * model_.hidden_size), NAN);
    const Tensor result = Tensor::view(out.data(), {kTokens, model_.hidden_size}, DType::kF32);
    projection->forward(ctx, x_.slice(1, mine.begin, mine.count), result);
    EXPECT_EQ(projection->is_partial(), output == OutputCut::kColumns);
    if (projection->is_partial()) tp.all_reduce(out.data(), result.numel(), DType::kF32);
    return out;
  }

  const ModelConfig model_ = make_model();
  Tensor weight_;
  Tensor x_;
};

TEST_P(Projections, GatheredOnesGiveTheBitsOfOneRank) {
  const std::vector<float> expected = run(*make_self_communicator(), OutputCut::kRows);
  for (int ranks = 2; ranks <= 5; ++ranks) {
    const auto errors = run_rank_threads(ranks, CommOptions{.transport = TransportKind::kInProcess}, [&](Communicator& tp) {
      const std::vector<float> got = run(tp, OutputCut::kRows);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0) << ranks << " ranks, rank " << tp.rank();
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

// Half of the bytes cross, and a half has 11 bits: the largest error is far below that of the int8 inputs.
TEST_P(Projections, OutputsOfQuantisedWeightsAreHalves) {
  const std::vector<float> sums = run(*make_self_communicator(), OutputCut::kColumns);
  const std::vector<float> gathered = run(*make_self_communicator(), OutputCut::kRows);
  for (size_t i = 0; i < sums.size(); ++i) {
    const float expected = is_quantized(GetParam()) ? half_to_float(float_to_half(sums[i])) : sums[i];
    ASSERT_EQ(gathered[i], expected) << i;
  }
}

TEST_P(Projections, PartialSumsAddUp) {
  const std::vector<float> expected = run(*make_self_communicator(), OutputCut::kColumns);
  const auto errors = run_rank_threads(3, CommOptions{.transport = TransportKind::kInProcess}, [&](Communicator& tp) {
    const std::vector<float> got = run(tp, OutputCut::kColumns);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 2e-4) << i;
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(Types, Projections, testing::Values(DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_1),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

}  // namespace
}  // namespace tutti

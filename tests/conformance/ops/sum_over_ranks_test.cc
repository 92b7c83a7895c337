// Products that add up over the ranks of a group in their own kernel, on one GPU: the other ranks are memory that the test
// fills and reads.
#include <cstring>

#include "tensor/cuda/ipc_memory.h"
#include "tensor/device_memory.h"
#include "tests/conformance/ops/product.h"

namespace tutti {
namespace {

using namespace cuda_ipc;

struct Number {
  float value;
  uint32_t epoch;
};

class SumOverRanksConformance : public ProductConformance {
 protected:
  void SetUp() override {
    if (!on_gpu()) GTEST_SKIP() << "GPUs only";
    ProductConformance::SetUp();
  }

  // A group of `size` of which this is `rank`; nobody else is there.
  void join(int rank, int size) {
    if (stream_ == nullptr) stream_ = cuda_stream(*ctx_.cuda);
    group_ = {};
    memory_.clear();
    for (int r = 0; r < size; ++r) group_.region[r] = zeros(kBulkOffset);
    group_.state = reinterpret_cast<IpcState*>(zeros(sizeof(IpcState)));
    memory_.push_back(cuda::allocate_pinned(sizeof(IpcStatus)));
    group_.status = new (memory_.back()->data()) IpcStatus{};
    group_.status->timeout_ns = 5'000'000'000;
    group_.rank = rank;
    group_.size = size;
    group_.lets_next_start = true;
  }

  // Every other rank's numbers for the collective `epoch`, as they would have sent them; what they add up to.
  std::vector<double> others(uint32_t epoch, int64_t count) {
    std::vector<double> sum(static_cast<size_t>(count));
    for (int r = 0; r < group_.size; ++r) {
      if (r == group_.rank) continue;
      const Values part = host_normals({count}, DType::kF32);
      std::vector<Number> numbers;
      for (double v : part.values) numbers.push_back({static_cast<float>(v), epoch});
      cuda::copy_async(slot(group_.rank, r, epoch), numbers.data(), numbers.size() * sizeof(Number), stream_);
      cuda::synchronize(stream_);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part.values[i];
    }
    return sum;
  }

  // What this rank has written for rank `to`.
  std::vector<Number> given(int to, uint32_t epoch, int64_t count) {
    std::vector<Number> numbers(static_cast<size_t>(count));
    cuda::copy_async(numbers.data(), slot(to, group_.rank, epoch), numbers.size() * sizeof(Number), stream_);
    cuda::synchronize(stream_);
    return numbers;
  }

  IpcState state() {
    IpcState found;
    cuda::copy_async(&found, group_.state, sizeof found, stream_);
    cuda::synchronize(stream_);
    return found;
  }

  void check(const PackedWeight& weight, int64_t k, const std::function<std::vector<double>(const Values& x)>& product, const Tensor& bias,
             double allowed) {
    const int64_t n = weight.out_features;
    auto epoch = static_cast<uint32_t>(state().ticks / kTicks);
    for (const int64_t tokens : {1, 2, 1, 2, 2}) {
      ++epoch;
      const std::string what = shape(tokens, k, n) + ", rank " + std::to_string(group_.rank) + " of " + std::to_string(group_.size);
      const Values x = normals({tokens, k}), residual = normals({tokens, n});
      const std::vector<double> own = product(x), sum = others(epoch, tokens * n);
      ASSERT_TRUE(ops::sums_over_ranks(ctx_, x.tensor, weight, residual.tensor)) << what;
      ops::linear_add(ctx_, x.tensor, weight, bias, residual.tensor, {}, &group_);
      const auto columns = static_cast<size_t>(n);
      expect_elements(read(residual.tensor), [&](size_t row, size_t column) {
        const size_t i = row * columns + column;
        return residual.values[i] + own[i] + sum[i];
      }, columns, allowed, what);
      for (int r = 0; r < group_.size; ++r) {
        std::vector<double> values;
        for (const Number& number : given(r, epoch, tokens * n)) {
          ASSERT_EQ(number.epoch, epoch) << what << ": what rank " << r << " got";
          values.push_back(number.value);
        }
        expect_close(values, own, allowed, what + ": what rank " + std::to_string(r) + " got");
      }
      EXPECT_EQ(state().ticks, epoch * kTicks) << what;
      EXPECT_EQ(group_.status->failed, 0u) << what;
    }
  }

  IpcGroup group_{};
  void* stream_ = nullptr;

 private:
  std::byte* zeros(size_t bytes) {
    memory_.push_back(cuda::allocate(bytes, ctx_.device));
    cuda::zero_async(memory_.back()->data(), bytes, stream_);
    return memory_.back()->data();
  }
  std::byte* slot(int to, int from, uint32_t epoch) {
    return group_.region[to] + kLowLatencyOffset + ((epoch & 1) * kMaxRanks + static_cast<size_t>(from)) * kLowLatencySlot;
  }

  std::vector<std::shared_ptr<Buffer>> memory_;
};

// {64, 34000} has more tiles than the GPU has room for.
const ProductShape kSummedShapes[] = {{2048, 4096}, {7168, 1040}, {520, 1030}, {64, 34000}, {1024, 8192}};

TEST_P(SumOverRanksConformance, AddsUp) {
  for (const ProductShape& s : kSummedShapes) {
    const auto k = static_cast<size_t>(s.k), n = static_cast<size_t>(s.n);
    const Values w = host_normals({s.n, s.k}, activations(), 1 / std::sqrt(static_cast<double>(s.k)));
    const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{w.tensor});
    const Values bias = normals({s.n}, DType::kF32);
    for (const auto& [rank, size] : {std::pair{0, 2}, {1, 2}, {2, 8}}) {
      join(rank, size);
      const bool with_bias = rank == 0;
      check(packed, s.k, [&](const Values& x) {
        std::vector<double> y;
        for (size_t row = 0; row < x.values.size() / k; ++row) {
          for (size_t column = 0; column < n; ++column) y.push_back(dot(x, row, w, column, k) + (with_bias ? bias.values[column] : 0.0));
        }
        return y;
      }, with_bias ? bias.tensor : Tensor(), tolerance(2.0) + of_sum(s.k));
    }
  }
}

// The product itself is that of the kernel without ranks, which has a test of its own (fp8_test.cc).
TEST_P(SumOverRanksConformance, AddsUpWithFp8Weights) {
  for (const ProductShape& s : {ProductShape{2048, 4096}, {7168, 1040}}) {
    const Values w = host_normals({s.n, s.k}, activations(), 1 / std::sqrt(static_cast<double>(s.k)));
    const PackedWeight packed = ops::pack_weight_fp8(ctx_, std::vector<Tensor>{w.tensor}, {});
    for (const int rank : {0, 1}) {
      join(rank, 2);
      check(packed, s.k, [&](const Values& x) {
        const Tensor out = poisoned({x.tensor.size(0), s.n}, DType::kF32);
        ops::linear(ctx_, x.tensor, packed, Tensor(), out);
        return read(out);
      }, Tensor(), tolerance(2.0));
    }
  }
}

TEST_P(SumOverRanksConformance, AWaitEndsAndNamesTheRank) {
  const int64_t k = 2048, n = 4096;
  const Values w = host_normals({n, k}, activations(), 0.02), x = normals({1, k}), residual = normals({1, n});
  const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{w.tensor});
  join(0, 3);
  group_.status->timeout_ns = 50'000'000;
  ops::linear_add(ctx_, x.tensor, packed, Tensor(), residual.tensor, {}, &group_);
  cuda::synchronize(stream_);
  EXPECT_EQ(group_.status->failed, 1u);
  EXPECT_EQ(group_.status->epoch, 1u);
  EXPECT_TRUE(group_.status->peer == 1 || group_.status->peer == 2) << group_.status->peer;
  EXPECT_EQ(state().broken, 1u);
  join(1, 2);
  group_.status->timeout_ns = uint64_t{1} << 60;
  group_.status->abort = 1;
  ops::linear_add(ctx_, x.tensor, packed, Tensor(), residual.tensor, {}, &group_);
  cuda::synchronize(stream_);
  EXPECT_EQ(group_.status->failed, 0u);
}

// Long rows and many tokens are other kernels' affair.
TEST_P(SumOverRanksConformance, SaysWhereItCan) {
  const Values w = host_normals({4096, 2048}, activations(), 0.02);
  const PackedWeight packed = ops::pack_weight(ctx_, std::vector<Tensor>{w.tensor});
  const Values x = normals({128, 2048}), residual = normals({128, 4096});
  EXPECT_FALSE(ops::sums_over_ranks(ctx_, x.tensor, packed, residual.tensor));
  use({.batch_invariant = true});
  EXPECT_FALSE(ops::sums_over_ranks(ctx_, x.tensor.slice(0, 0, 1), packed, residual.tensor.slice(0, 0, 1)));
}

INSTANTIATE_TEST_SUITE_P(Backends, SumOverRanksConformance, testing::ValuesIn(backends()), backend_name);

}  // namespace
}  // namespace tutti

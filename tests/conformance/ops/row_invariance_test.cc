// A row's bits depend on nothing but the row: not on the rows beside it (1..64 of them), not on where it stands, not on
// the number of threads. And quantised weights give the same bits at every level that has fused multiply-adds.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "ops/cpu/isa.h"
#include "ops/ops.h"
#include "tensor/quantize.h"

namespace tutti {
namespace {

constexpr int64_t kRows = 64, kFeatures = 1024, kOut = 104;

class RowInvariance : public testing::TestWithParam<int> {
 protected:
  RowInvariance() : seed_(std::random_device{}()), random_(seed_), arena_(size_t{64} << 20, Device::cpu()) {}
  void TearDown() override {
    if (HasFailure()) std::printf("seed %u\n", seed_);
  }

  Context context(ThreadPool& pool) {
    return {.pool = &pool, .arena = &arena_, .kernels = &cpu::available_tables()[static_cast<size_t>(GetParam())]};
  }

  Tensor normals(int64_t rows, int64_t columns) {
    Tensor t = Tensor::empty({rows, columns}, DType::kF32);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < t.numel(); ++i) t.data_as<float>()[i] = normal(random_);
    return t;
  }

  Tensor weight(DType dtype, int64_t rows) {
    const Tensor values = normals(rows, kFeatures), w = Tensor::empty({rows, kFeatures}, dtype);
    for (int64_t r = 0; r < rows; ++r) {
      if (dtype == DType::kF32) {
        std::memcpy(w.row<float>(r), values.row<float>(r), values.stride_bytes(0));
      } else {
        quantize_row(values.row<float>(r), kFeatures, dtype, w.row<uint8_t>(r));
      }
    }
    return w;
  }

  static Tensor poisoned(int64_t rows, int64_t columns) {
    Tensor t = Tensor::empty({rows, columns}, DType::kF32);
    std::memset(t.data(), 0xff, t.bytes());
    return t;
  }

  // `op`(context, x, out) on every number of rows, from every other start, with 1..4 threads, equals row by row what
  // one thread makes of all rows.
  template <class Op>
  void expect_invariant(int64_t columns, const std::string& name, Op&& op) {
    const Tensor x = normals(kRows, kFeatures), all = poisoned(kRows, columns);
    ThreadPool one(1);
    op(context(one), x, all);
    for (int threads = 1; threads <= 4; ++threads) {
      ThreadPool pool(threads, 0);
      for (int64_t rows = 1; rows <= kRows; rows += threads) {
        const int64_t first = std::uniform_int_distribution<int64_t>(0, kRows - rows)(random_);
        const Tensor out = poisoned(rows, columns);
        op(context(pool), x.slice(0, first, rows), out);
        ASSERT_EQ(std::memcmp(out.data(), all.row<float>(first), out.bytes()), 0)
            << name << ", rows " << first << " + " << rows << ", " << threads << " threads";
      }
    }
  }

  unsigned seed_;
  std::mt19937 random_;
  Arena arena_;
};

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0, DType::kQ4_0,
                            DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ2_K, DType::kQ3_K,
                            DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

TEST_P(RowInvariance, LinearAndGateUp) {
  ThreadPool pool(2);
  for (const DType dtype : kTypes) {
    const Tensor pieces[] = {weight(dtype, kOut), weight(dtype, kOut)};
    const PackedWeight w = ops::pack_weight(context(pool), pieces);
    const std::string name(dtype_name(dtype));
    expect_invariant(2 * kOut, "linear " + name, [&](const Context& ctx, const Tensor& x, const Tensor& out) {
      ops::linear(ctx, x, w, Tensor(), out);
    });
    expect_invariant(kOut, "gate_up_silu " + name, [&](const Context& ctx, const Tensor& x, const Tensor& out) {
      ops::gate_up_silu(ctx, x, w, out);
    });
  }
}

TEST_P(RowInvariance, Norm) {
  const Tensor weight = normals(1, kFeatures).reshape({kFeatures});
  expect_invariant(kFeatures, "rms_norm", [&](const Context& ctx, const Tensor& x, const Tensor& out) {
    ops::rms_norm(ctx, x, weight, 1e-5, out);
  });
}

TEST_P(RowInvariance, ManyRowsInGroups) {
  ThreadPool pool(2), one(1);
  for (const DType dtype : {DType::kBF16, DType::kQ8_0, DType::kQ4_1}) {
    const Tensor w = weight(dtype, kOut);
    const PackedWeight packed = ops::pack_weight(context(pool), std::span(&w, 1));
    const Tensor x = normals(700, kFeatures), all = poisoned(700, kOut), single = poisoned(1, kOut);
    ops::linear(context(pool), x, packed, Tensor(), all);
    for (int64_t r = 0; r < 700; r += 7) {
      ops::linear(context(one), x.slice(0, r, 1), packed, Tensor(), single);
      ASSERT_EQ(std::memcmp(single.data(), all.row<float>(r), single.bytes()), 0) << dtype_name(dtype) << " row " << r;
    }
  }
}

TEST_P(RowInvariance, QuantisedBitsAreThoseOfEveryFusedLevel) {
  ThreadPool pool(2);
  const Context ctx = context(pool);
  if (ctx.kernels->level->isa == cpu::Isa::kPortable) return;  // multiplies, then adds
  for (const DType dtype : kTypes) {
    if (!is_quantized(dtype)) continue;
    const Tensor w = weight(dtype, kOut), x = normals(37, kFeatures), out = poisoned(37, kOut), other = poisoned(37, kOut);
    const PackedWeight packed = ops::pack_weight(ctx, std::span(&w, 1));
    ops::linear(ctx, x, packed, Tensor(), out);
    Context reference = ctx;
    reference.kernels = &cpu::available_tables()[1];
    ops::linear(reference, x, packed, Tensor(), other);
    ASSERT_EQ(std::memcmp(out.data(), other.data(), out.bytes()), 0) << dtype_name(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, RowInvariance, testing::Range(0, static_cast<int>(cpu::available_tables().size())),
                         [](const auto& info) {
                           return std::string(cpu::available_tables()[static_cast<size_t>(info.param)].level->name);
                         });

}  // namespace
}  // namespace tutti

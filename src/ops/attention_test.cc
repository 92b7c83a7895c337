// Paged attention and cache writes against float64, on random paged caches with poisoned free slots.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "ops/cpu/isa.h"
#include "ops/ops.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace tutti {
namespace {

struct Shape {
  int64_t heads, kv_heads, head_dim, block_size;
  DType cache = DType::kF32;
  int64_t window = 0;
  double cap = 0;
};

// Sequences with their whole history of keys and values, and a cache that holds them in shuffled blocks.
class Fixture {
 public:
  Fixture(Context ctx, const Shape& shape, std::vector<int> lengths, unsigned seed)
      : ctx_(ctx), shape_(shape), lengths_(std::move(lengths)), random_(seed) {
    for (int length : lengths_) {
      max_blocks_ = std::max<int64_t>(max_blocks_, (length + shape_.block_size - 1) / shape_.block_size);
    }
    const auto num_seqs = static_cast<int64_t>(lengths_.size());
    const int64_t num_blocks = num_seqs * max_blocks_ + 3;
    std::vector<int32_t> order(static_cast<size_t>(num_blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    block_table_ = Tensor::empty({num_seqs, max_blocks_}, DType::kI32);
    std::copy_n(order.begin(), num_seqs * max_blocks_, block_table_.data_as<int32_t>());
    cache_.keys = Tensor::empty({num_blocks, shape_.kv_heads, shape_.block_size, shape_.head_dim}, shape_.cache);
    cache_.values = Tensor::empty({num_blocks, shape_.kv_heads, shape_.block_size, shape_.head_dim}, shape_.cache);
    std::memset(cache_.keys.data(), 0xff, cache_.keys.bytes());  // NaN
    std::memset(cache_.values.data(), 0xff, cache_.values.bytes());
    for (int length : lengths_) {
      keys_.push_back(normals({length, shape_.kv_heads, shape_.head_dim}));
      values_.push_back(normals({length, shape_.kv_heads, shape_.head_dim}));
      queries_.push_back(normals({length, shape_.heads, shape_.head_dim}));
      cached_keys_.push_back(as_cached(keys_.back()));
      cached_values_.push_back(as_cached(values_.back()));
    }
  }

  // One step: sequence s computes its tokens [from[s], to[s]). Returns [tokens, heads, head_dim]. Without attention it only
  // fills the cache.
  Tensor step(const std::vector<int>& from, const std::vector<int>& to, bool attention = true) {
    const auto num_seqs = static_cast<int64_t>(lengths_.size());
    AttentionMetadata meta;
    meta.num_seqs = static_cast<int>(num_seqs);
    meta.query_start = Tensor::zeros({num_seqs + 1}, DType::kI32);
    meta.seq_lens = Tensor::zeros({num_seqs}, DType::kI32);
    for (size_t s = 0; s < lengths_.size(); ++s) {
      meta.query_start.data_as<int32_t>()[s + 1] = meta.query_start.data_as<int32_t>()[s] + to[s] - from[s];
      meta.seq_lens.data_as<int32_t>()[s] = to[s];
      meta.num_tokens += to[s] - from[s];
    }
    meta.block_table = block_table_;
    meta.positions = Tensor::empty({meta.num_tokens}, DType::kI32);
    meta.slot_mapping = Tensor::empty({meta.num_tokens}, DType::kI64);
    const Tensor q = Tensor::empty({meta.num_tokens, shape_.heads, shape_.head_dim}, DType::kF32);
    const Tensor k = Tensor::empty({meta.num_tokens, shape_.kv_heads, shape_.head_dim}, DType::kF32);
    const Tensor v = Tensor::empty({meta.num_tokens, shape_.kv_heads, shape_.head_dim}, DType::kF32);
    int64_t row = 0;
    for (size_t s = 0; s < lengths_.size(); ++s) {
      for (int p = from[s]; p < to[s]; ++p, ++row) {
        std::memcpy(q.row<float>(row), queries_[s].row<float>(p), q.stride_bytes(0));
        std::memcpy(k.row<float>(row), keys_[s].row<float>(p), k.stride_bytes(0));
        std::memcpy(v.row<float>(row), values_[s].row<float>(p), v.stride_bytes(0));
        meta.positions.data_as<int32_t>()[row] = p;
        meta.slot_mapping.data_as<int64_t>()[row] =
            block_table_.row<int32_t>(static_cast<int64_t>(s))[p / shape_.block_size] * shape_.block_size +
            p % shape_.block_size;
      }
    }
    const Tensor out = Tensor::empty({meta.num_tokens, shape_.heads, shape_.head_dim}, DType::kF32);
    std::memset(out.data(), 0xff, out.bytes());
    ops::write_kv(ctx_, k, v, meta, cache_);
    if (attention) ops::paged_attention(ctx_, q, cache_, meta, params(), out);
    return out;
  }

  void use(const Context& ctx) { ctx_ = ctx; }
  const Tensor& values_of(size_t seq) const { return values_[seq]; }

  ops::AttentionParams params() const {
    return {.scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim)), .sliding_window = shape_.window, .soft_cap = shape_.cap};
  }

  std::vector<double> expected(size_t seq, int position, int64_t head) const {
    const int64_t kv_head = head / (shape_.heads / shape_.kv_heads), d = shape_.head_dim;
    const int first = shape_.window > 0 ? std::max<int>(0, position - static_cast<int>(shape_.window) + 1) : 0;
    std::vector<double> scores, out(static_cast<size_t>(d), 0.0);
    double max = -INFINITY, sum = 0;
    for (int p = first; p <= position; ++p) {
      double dot = 0;
      for (int64_t i = 0; i < d; ++i) {
        dot += double{queries_[seq].row<float>(position)[head * d + i]} * cached_keys_[seq].row<float>(p)[kv_head * d + i];
      }
      dot *= params().scale;
      if (shape_.cap > 0) dot = shape_.cap * std::tanh(dot / shape_.cap);
      scores.push_back(dot);
      max = std::max(max, dot);
    }
    for (double& s : scores) sum += s = std::exp(s - max);
    for (int p = first; p <= position; ++p) {
      for (int64_t i = 0; i < d; ++i) {
        out[static_cast<size_t>(i)] +=
            scores[static_cast<size_t>(p - first)] / sum * cached_values_[seq].row<float>(p)[kv_head * d + i];
      }
    }
    return out;
  }

 private:
  // What is left of values after a stay in the cache.
  Tensor as_cached(const Tensor& x) const {
    const Tensor out = Tensor::empty({x.size(0), x.size(1), x.size(2)}, DType::kF32);
    std::vector<uint8_t> row(dtype_bytes(shape_.cache, x.size(2)));
    for (int64_t i = 0; i < x.numel(); i += x.size(2)) {
      const float* in = x.data_as<float>() + i;
      float* target = out.data_as<float>() + i;
      if (shape_.cache == DType::kF32) {
        std::copy_n(in, x.size(2), target);
      } else {
        quantize_row(in, x.size(2), shape_.cache, row.data());
        dequantize_row(shape_.cache, row.data(), x.size(2), target);
      }
    }
    return out;
  }
  Tensor normals(std::initializer_list<int64_t> shape) {
    Tensor t = Tensor::empty(shape, DType::kF32);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < t.numel(); ++i) t.data_as<float>()[i] = normal(random_);
    return t;
  }

  Context ctx_;
  Shape shape_;
  std::vector<int> lengths_;
  std::mt19937 random_;
  int64_t max_blocks_ = 0;
  Tensor block_table_;
  KVLayer cache_;
  std::vector<Tensor> keys_, values_, queries_, cached_keys_, cached_values_;
};

class AttentionTest : public testing::TestWithParam<int> {
 protected:
  AttentionTest() : pool_(2), arena_(size_t{64} << 20, Device::cpu()), seed_(std::random_device{}()) {
    ctx_ = {.pool = &pool_, .arena = &arena_, .kernels = &cpu::available_tables()[static_cast<size_t>(GetParam())]};
  }
  void TearDown() override {
    if (HasFailure()) std::printf("seed %u, level %s\n", seed_, std::string(ctx_.kernels->name).c_str());
  }

  ThreadPool pool_;
  Arena arena_;
  Context ctx_;
  unsigned seed_;
};

TEST_P(AttentionTest, MixedStepsMatchFloat64) {
  const Shape shapes[] = {{9, 3, 64, 16}, {4, 4, 80, 16, DType::kBF16}, {8, 2, 128, 32, DType::kBF16, 100}, {4, 1, 96, 8, DType::kF32, 0, 20.0},
                          {6, 2, 256, 16, DType::kBF16, 7}, {5, 5, 2, 3}, {9, 3, 64, 16, DType::kQ8_0}, {8, 2, 128, 32, DType::kQ8_0, 100},
                          {16, 2, 96, 8, DType::kQ8_0, 0, 20.0}, {4, 4, 32, 3, DType::kQ8_0}};
  for (const Shape& shape : shapes) {
    const std::vector<int> lengths = {300, 33, 1, 590}, from = {0, 30, 0, 589};
    Fixture f(ctx_, shape, lengths, seed_);
    f.step({0, 0, 0, 0}, {0, 30, 0, 589});
    const Tensor out = f.step(from, lengths);
    int64_t row = 0;
    for (size_t s = 0; s < lengths.size(); ++s) {
      for (int p = from[s]; p < lengths[s]; ++p, ++row) {
        if (p % 7 != 0 && p + 1 != lengths[s]) continue;
        for (int64_t h = 0; h < shape.heads; ++h) {
          const auto expected = f.expected(s, p, h);
          for (int64_t i = 0; i < shape.head_dim; ++i) {
            ASSERT_NEAR(out.row<float>(row)[h * shape.head_dim + i], expected[static_cast<size_t>(i)], 1e-5)
                << "head_dim " << shape.head_dim << " sequence " << s << " position " << p << " head " << h;
          }
        }
      }
    }
  }
}

TEST_P(AttentionTest, BitsDoNotDependOnChunksOrNeighbours) {
  for (const Shape& shape : {Shape{6, 2, 64, 16, DType::kBF16}, Shape{6, 2, 80, 16, DType::kF32, 150},
                             Shape{6, 2, 64, 16, DType::kQ8_0}}) {
    Fixture f(ctx_, shape, {600, 40}, seed_);
    const Tensor whole = f.step({0, 0}, {600, 40});
    const size_t row_bytes = whole.stride_bytes(0);
    for (int chunk : {1, 5, 64, 333}) {
      for (int p = 0; p < 600; p += chunk) {
        if (chunk == 1 && p % 13 != 0 && p < 590) continue;  // the cache is full already
        const int end = std::min(600, p + chunk);
        const Tensor part = f.step({p, 39}, {end, 40});
        for (int i = p; i < end; ++i) {
          ASSERT_EQ(std::memcmp(part.row<float>(i - p), whole.row<float>(i), row_bytes), 0) << "chunk " << chunk << " row " << i;
        }
        ASSERT_EQ(std::memcmp(part.row<float>(end - p), whole.row<float>(639), row_bytes), 0);
      }
    }
  }
}

// Many threads leave many partial results of a long sequence: as many at once as there is room for.
TEST_P(AttentionTest, BitsDoNotDependOnTheArenasSize) {
  ThreadPool many(16);
  Fixture f(ctx_, {6, 2, 64, 16, DType::kBF16}, {4000}, seed_);
  f.step({0}, {3900}, /*attention=*/false);
  Tensor first;
  for (const size_t kilobytes : {size_t{64} << 10, size_t{2048}, size_t{1100}, size_t{300}, size_t{100}}) {
    Arena arena(kilobytes << 10, Device::cpu());
    f.use({.pool = &many, .arena = &arena, .kernels = ctx_.kernels});
    const Tensor out = f.step({3900}, {4000});
    if (!first.defined()) first = out;
    for (int64_t i = 0; i < 100; ++i) {
      ASSERT_EQ(std::memcmp(out.row<float>(i), first.row<float>(i), out.stride_bytes(0)), 0) << kilobytes << " KiB, row " << i;
    }
  }
}

// Codes of an int8 cache cannot say it: the scale does.
TEST_P(AttentionTest, WhatIsNotANumberStaysOne) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0}) {
    for (const float bad : {NAN, INFINITY}) {
      Fixture f(ctx_, {2, 2, 64, 16, type}, {40}, seed_);
      f.values_of(0).row<float>(7)[64 + 33] = bad;  // head 1
      const Tensor out = f.step({0}, {40});
      EXPECT_FALSE(std::isfinite(out.row<float>(39)[64 + 33])) << dtype_name(type);
      EXPECT_TRUE(std::isfinite(out.row<float>(39)[33])) << "the other head";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, AttentionTest, testing::Range(0, static_cast<int>(cpu::available_tables().size())),
                         [](const auto& info) {
                           return std::string(cpu::available_tables()[static_cast<size_t>(info.param)].level->name);
                         });

}  // namespace
}  // namespace tutti

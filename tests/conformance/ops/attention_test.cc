// write_kv and paged_attention against float64: sequences with a history in shuffled blocks, and a step in which each
// has some number of new rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/conformance/ops/backend.h"

namespace tutti {
namespace {

// Rows [from, to) of a sequence are computed in the step.
struct Span {
  int from, to;
};

struct Case {
  const char* name;
  int64_t heads, kv_heads, head_dim, block_size;
  std::vector<Span> seqs;
  int64_t window = 0;
  double cap = 0;
};

const Case kCases[] = {
    {"one token", 32, 8, 128, 16, {{0, 1}}},
    {"decode", 32, 8, 128, 16, {{511, 512}}},
    {"two tiles a block", 32, 8, 128, 16, {{600, 601}}},
    {"more tiles than a cluster takes", 32, 8, 128, 16, {{1100, 1101}}},
    {"decode of several", 32, 8, 128, 16, {{62, 63}, {63, 64}, {64, 65}, {700, 701}, {0, 1}, {1200, 1201}}},
    {"decode of many", 8, 2, 64, 16, std::vector<Span>(150, Span{99, 100})},
    {"long decode", 8, 1, 128, 32, {{4000, 4001}}},
    {"no groups", 4, 4, 64, 16, {{100, 101}, {20, 40}}},
    {"group of 9", 9, 1, 64, 16, {{100, 101}, {3, 70}}},
    {"group of 24", 24, 1, 64, 16, {{100, 101}, {3, 40}}},
    {"prefill", 32, 8, 128, 16, {{0, 300}}},
    {"prefill of several", 8, 2, 128, 16, {{0, 2}, {0, 64}, {0, 129}, {0, 31}}},
    {"chunk", 8, 2, 128, 16, {{300, 428}}},
    {"mixed", 8, 2, 128, 16, {{300, 428}, {99, 100}, {0, 17}, {500, 501}, {0, 1}, {40, 42}}},
    {"head_dim 16", 4, 2, 16, 8, {{30, 31}, {0, 50}}},
    {"head_dim 80", 4, 2, 80, 16, {{130, 131}, {0, 50}}},
    {"head_dim 96", 4, 2, 96, 16, {{130, 131}, {0, 50}}},
    {"head_dim 112", 4, 2, 112, 16, {{130, 131}, {0, 50}}},
    {"head_dim 160", 4, 2, 160, 16, {{130, 131}, {0, 50}}},
    {"head_dim 192", 4, 2, 192, 16, {{130, 131}, {0, 150}}},
    {"head_dim 256", 4, 2, 256, 16, {{130, 131}, {0, 150}}},
    {"window", 8, 2, 128, 16, {{300, 301}, {20, 21}, {0, 200}, {250, 290}}, 50},
    {"window of 1", 4, 2, 64, 16, {{100, 101}, {0, 20}}, 1},
    {"soft cap", 8, 2, 128, 16, {{300, 301}, {0, 150}}, 0, 2.0},
    {"block of 1", 4, 2, 64, 1, {{30, 31}, {0, 20}}},
    {"block of 24", 4, 2, 64, 24, {{130, 131}, {0, 70}}},
};

class AttentionConformance : public OpsConformance {
 protected:
  void prepare(const Case& c) {
    case_ = &c;
    int64_t max_blocks = 1;
    for (const Span& s : c.seqs) max_blocks = std::max<int64_t>(max_blocks, (s.to + c.block_size - 1) / c.block_size);
    const auto num_seqs = static_cast<int64_t>(c.seqs.size());
    const int64_t num_blocks = num_seqs * max_blocks + 3;
    std::vector<int32_t> order(static_cast<size_t>(num_blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    order.resize(static_cast<size_t>(num_seqs * max_blocks));
    table_ = order;
    max_blocks_ = max_blocks;
    block_table_ = ints(order).reshape({num_seqs, max_blocks});
    cache_.keys = poisoned({num_blocks, c.kv_heads, c.block_size, c.head_dim}, cache_type());
    cache_.values = poisoned({num_blocks, c.kv_heads, c.block_size, c.head_dim}, cache_type());
    history_.clear();
  }

  DType cache_type() const { return fp8_cache_ ? DType::kF8E4M3 : activations(); }

  // One step of all sequences; rows of q, k and v are slices of wider ones. Returns [tokens, heads, head_dim].
  struct Rows {
    Values qkv;
    std::vector<int> first_row;  // of each sequence
  };

  AttentionMetadata metadata(const std::vector<Span>& spans) {
    AttentionMetadata meta;
    std::vector<int32_t> query_start = {0}, lens, positions;
    std::vector<int64_t> slots;
    for (size_t s = 0; s < spans.size(); ++s) {
      for (int p = spans[s].from; p < spans[s].to; ++p) {
        positions.push_back(p);
        const int32_t block = table_[s * static_cast<size_t>(max_blocks_) + static_cast<size_t>(p / case_->block_size)];
        slots.push_back(block * case_->block_size + p % case_->block_size);
      }
      query_start.push_back(static_cast<int32_t>(positions.size()));
      lens.push_back(spans[s].to);
      meta.max_query_len = std::max(meta.max_query_len, spans[s].to - spans[s].from);
      meta.max_seq_len = std::max<int64_t>(meta.max_seq_len, spans[s].to);
    }
    meta.num_seqs = static_cast<int>(spans.size());
    meta.num_tokens = static_cast<int64_t>(positions.size());
    meta.query_start = ints(query_start);
    meta.seq_lens = ints(lens);
    meta.block_table = block_table_;
    meta.positions = ints(positions);
    meta.slot_mapping = longs(slots);
    return meta;
  }

  // Writes keys and values of these rows and keeps what they are.
  Values write(const std::vector<Span>& spans, const AttentionMetadata& meta) {
    const Case& c = *case_;
    const int64_t width = (c.heads + 2 * c.kv_heads) * c.head_dim;
    Values qkv = normals({meta.num_tokens, width});
    const Tensor k = qkv.tensor.slice(1, c.heads * c.head_dim, c.kv_heads * c.head_dim).split_last(c.kv_heads, c.head_dim);
    const Tensor v = qkv.tensor.slice(1, (c.heads + c.kv_heads) * c.head_dim, c.kv_heads * c.head_dim).split_last(c.kv_heads, c.head_dim);
    ops::write_kv(ctx_, k, v, meta, cache_);
    history_.resize(spans.size());
    size_t row = 0;
    for (size_t s = 0; s < spans.size(); ++s) {
      for (int p = spans[s].from; p < spans[s].to; ++p, ++row) {
        history_[s].push_back({qkv.values.begin() + static_cast<int64_t>(row) * width, qkv.values.begin() + static_cast<int64_t>(row + 1) * width});
        std::vector<double>& kept = history_[s].back();
        for (size_t i = static_cast<size_t>(c.heads * c.head_dim); i < kept.size(); ++i) kept[i] = rounded(kept[i], cache_type());
      }
    }
    return qkv;
  }

  std::vector<double> expected(size_t seq, int position, int64_t head) const {
    const Case& c = *case_;
    const int64_t d = c.head_dim, kv = head / (c.heads / c.kv_heads);
    const int first = c.window > 0 ? std::max(0, position - static_cast<int>(c.window) + 1) : 0;
    const double* q = history_[seq][static_cast<size_t>(position)].data() + head * d;
    std::vector<double> scores, out(static_cast<size_t>(d), 0.0);
    double max = -INFINITY, sum = 0;
    for (int p = first; p <= position; ++p) {
      const double* k = history_[seq][static_cast<size_t>(p)].data() + (c.heads + kv) * d;
      double dot = 0;
      for (int64_t i = 0; i < d; ++i) dot += q[i] * k[i];
      dot /= std::sqrt(static_cast<double>(d));
      if (c.cap > 0) dot = c.cap * std::tanh(dot / c.cap);
      scores.push_back(dot);
      max = std::max(max, dot);
    }
    for (double& s : scores) sum += s = std::exp(s - max);
    for (int p = first; p <= position; ++p) {
      const double* v = history_[seq][static_cast<size_t>(p)].data() + (c.heads + c.kv_heads + kv) * d;
      for (int64_t i = 0; i < d; ++i) out[static_cast<size_t>(i)] += scores[static_cast<size_t>(p - first)] / sum * v[i];
    }
    return out;
  }

  void run() {
    const Case& c = *case_;
    std::vector<Span> before;
    for (const Span& s : c.seqs) before.push_back({0, s.from});
    const AttentionMetadata earlier = metadata(before);
    if (earlier.num_tokens > 0) write(before, earlier);
    const AttentionMetadata meta = metadata(c.seqs);
    const Values qkv = write(c.seqs, meta);
    const Tensor out = poisoned({meta.num_tokens, c.heads, c.head_dim});
    const Tensor q = qkv.tensor.slice(1, 0, c.heads * c.head_dim).split_last(c.heads, c.head_dim);
    ops::paged_attention(ctx_, q, cache_, meta,
                         {.scale = 1 / std::sqrt(static_cast<double>(c.head_dim)), .sliding_window = c.window, .soft_cap = c.cap}, out);
    const std::vector<double> all = read(out);
    for (double v : all) ASSERT_TRUE(std::isfinite(v)) << c.name << ": an element was not written, or saw a slot that was not";
    (void)read(cache_.keys);  // the guards
    (void)read(cache_.values);
    std::vector<double> a, e;
    size_t row = 0;
    const double share = 400.0 / static_cast<double>(meta.num_tokens * c.heads);
    for (size_t s = 0; s < c.seqs.size(); ++s) {
      for (int p = c.seqs[s].from; p < c.seqs[s].to; ++p, ++row) {
        for (int64_t h = 0; h < c.heads; ++h) {
          if (std::uniform_real_distribution<>()(random_) > share) continue;
          const std::vector<double> one = expected(s, p, h);
          e.insert(e.end(), one.begin(), one.end());
          const auto begin = all.begin() + (static_cast<int64_t>(row) * c.heads + h) * c.head_dim;
          a.insert(a.end(), begin, begin + c.head_dim);
        }
      }
    }
    expect_close(a, e, on_gpu() ? tolerance(2.0) : 1e-5, c.name);
  }

  bool fp8_cache_ = false;
  const Case* case_ = nullptr;
  std::vector<int32_t> table_;
  int64_t max_blocks_ = 0;
  Tensor block_table_;
  KVLayer cache_;
  std::vector<std::vector<std::vector<double>>> history_;  // sequence, position: q, k and v of its row
};

TEST_P(AttentionConformance, EveryShape) {
  for (const Case& c : kCases) {
    prepare(c);
    run();
  }
}

TEST_P(AttentionConformance, Fp8Cache) {
  if (!on_gpu()) GTEST_SKIP() << "GPUs only";
  fp8_cache_ = true;
  for (const Case& c : kCases) {
    prepare(c);
    run();
  }
}

// As on GPUs whose blocks have less than Hopper's: other kernels, or the same with fewer tiles at once.
TEST_P(AttentionConformance, WithLessSharedMemory) {
  if (!on_gpu()) GTEST_SKIP() << "GPUs only";
  use({.shared_memory = size_t{99} << 10});
  for (const bool fp8 : {false, true}) {
    fp8_cache_ = fp8;
    for (const Case& c : kCases) {
      prepare(c);
      run();
    }
  }
}

// The counters of the split kernels are left as they were found: the same step again gives the same bits.
TEST_P(AttentionConformance, Repeats) {
  const Case c{"repeats", 32, 8, 128, 16, {{511, 512}, {80, 81}}};
  prepare(c);
  const AttentionMetadata earlier = metadata({{0, 511}, {0, 80}});
  write({{0, 511}, {0, 80}}, earlier);
  const AttentionMetadata meta = metadata(c.seqs);
  const Values qkv = write(c.seqs, meta);
  const Tensor q = qkv.tensor.slice(1, 0, c.heads * c.head_dim).split_last(c.heads, c.head_dim);
  std::vector<double> first;
  for (int i = 0; i < 20; ++i) {
    const Tensor out = poisoned({2, c.heads, c.head_dim});
    ops::paged_attention(ctx_, q, cache_, meta, {.scale = 0.088}, out);
    if (i == 0) first = read(out);
    else EXPECT_EQ(read(out), first);
  }
}

// In one pass: the same bits as rope, rope, write_kv.
TEST_P(AttentionConformance, RopeWriteKv) {
  for (const Case& c : {Case{"", 32, 8, 128, 16, {{0, 3}, {40, 41}}}, Case{"", 3, 1, 80, 16, {{0, 20}}}, Case{"", 2, 2, 18, 8, {{5, 9}}}}) {
    for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
      for (const int64_t pairs : {c.head_dim / 2, (c.head_dim / 2 + 1) / 2}) {
        prepare(c);
        const AttentionMetadata meta = metadata(c.seqs);
        const Values table = normals({64, 2, pairs}, DType::kF32);
        const int64_t q_size = c.heads * c.head_dim, kv_size = c.kv_heads * c.head_dim;
        const Values qkv = normals({meta.num_tokens, q_size + 2 * kv_size});
        const Tensor twin = clone(qkv.tensor);
        const auto q = [&](const Tensor& x) { return x.slice(1, 0, q_size).split_last(c.heads, c.head_dim); };
        const auto k = [&](const Tensor& x) { return x.slice(1, q_size, kv_size).split_last(c.kv_heads, c.head_dim); };
        const auto v = [&](const Tensor& x) { return x.slice(1, q_size + kv_size, kv_size).split_last(c.kv_heads, c.head_dim); };
        ops::rope(ctx_, q(qkv.tensor), meta.positions, table.tensor, layout);
        ops::rope(ctx_, k(qkv.tensor), meta.positions, table.tensor, layout);
        ops::write_kv(ctx_, k(qkv.tensor), v(qkv.tensor), meta, cache_);
        const KVLayer other{clone(cache_.keys), clone(cache_.values)};
        ops::rope_write_kv(ctx_, q(twin), k(twin), v(twin), table.tensor, layout, meta, other);
        EXPECT_EQ(read(qkv.tensor), read(twin));
        EXPECT_EQ(bytes(cache_.keys), bytes(other.keys));
        EXPECT_EQ(bytes(cache_.values), bytes(other.values));
      }
    }
  }
}

// The products of q, k and v with rotation and cache writes, from their normed input; of which (`ahead`) the product before
// may have left a part.
TEST_P(AttentionConformance, QkvRopeWriteKv) {
  for (const auto& [fp8, ahead] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    if (fp8 && !on_gpu()) continue;
    fp8_cache_ = fp8;
    for (const Case& c : {Case{"", 32, 8, 128, 16, {{40, 41}}}, Case{"", 8, 2, 128, 16, {{0, 3}, {40, 45}}}, Case{"", 4, 2, 64, 16, {{7, 15}}},
                          Case{"", 6, 1, 96, 24, {{3, 5}, {0, 1}}}, Case{"", 2, 2, 256, 8, {{50, 51}}}, Case{"", 3, 1, 80, 16, {{0, 4}}},
                          Case{"", 4, 2, 128, 16, {{0, 9}, {1, 2}}}, Case{"", 8, 2, 64, 16, {{0, 20}}}, Case{"", 8, 2, 128, 16, {{0, 40}, {3, 4}}}}) {
      prepare(c);
      AttentionMetadata meta = metadata(c.seqs);
      const int64_t hidden = 512, q_size = c.heads * c.head_dim, kv_size = c.kv_heads * c.head_dim, width = q_size + 2 * kv_size, half = c.head_dim / 2;
      const Values x = normals({meta.num_tokens, hidden}), norm = normals({hidden}, DType::kF32), bias = normals({width}, DType::kF32);
      const Values w = host_normals({width, hidden}, activations(), 1 / std::sqrt(static_cast<double>(hidden)));
      const Values table = normals({64, 2, half}, DType::kF32);
      const PackedWeight packed = ops::pack_weight(
          ctx_, std::vector<Tensor>{w.tensor.slice(0, 0, q_size), w.tensor.slice(0, q_size, kv_size), w.tensor.slice(0, q_size + kv_size, kv_size)});
      const Tensor qkv = poisoned({meta.num_tokens, width});
      const ops::Input input = ahead ? left_for_norm(x, norm, 1e-5) : ops::Input(x.tensor, norm.tensor, 1e-5);
      ops::qkv_rope_write_kv(ctx_, input, packed, bias.tensor, table.tensor, RopeLayout::kHalf, meta, cache_, qkv);

      Values expected{Tensor::empty({meta.num_tokens, width}, activations()), {}};
      const std::vector<double> slots_positions = read(meta.positions);
      for (int64_t t = 0; t < meta.num_tokens; ++t) {
        double squares = 0;
        const double* row = x.values.data() + t * hidden;
        for (int64_t i = 0; i < hidden; ++i) squares += row[i] * row[i];
        const double factor = 1 / std::sqrt(squares / static_cast<double>(hidden) + 1e-5);
        std::vector<double> out(static_cast<size_t>(width));
        for (int64_t n = 0; n < width; ++n) {
          double sum = bias.values[static_cast<size_t>(n)];
          for (int64_t i = 0; i < hidden; ++i) sum += row[i] * factor * norm.values[static_cast<size_t>(i)] * w.values[static_cast<size_t>(n * hidden + i)];
          out[static_cast<size_t>(n)] = sum;
        }
        const double* cos = table.values.data() + static_cast<int64_t>(slots_positions[static_cast<size_t>(t)]) * 2 * half;
        for (int64_t h = 0; h < c.heads + c.kv_heads; ++h) {
          for (int64_t i = 0; i < half; ++i) {
            double& low = out[static_cast<size_t>(h * c.head_dim + i)];
            double& high = out[static_cast<size_t>(h * c.head_dim + half + i)];
            const double turned = low * cos[i] - high * cos[half + i];
            high = high * cos[i] + low * cos[half + i];
            low = turned;
          }
        }
        expected.values.insert(expected.values.end(), out.begin(), out.end());
      }
      std::vector<double> a, e;
      const std::vector<double> all = read(qkv);
      for (int64_t i = 0; i < meta.num_tokens * width; ++i) {
        if (i % width < q_size) a.push_back(all[static_cast<size_t>(i)]), e.push_back(expected.values[static_cast<size_t>(i)]);
      }
      const std::string name = std::to_string(meta.num_tokens) + " of head_dim " + std::to_string(c.head_dim);
      expect_close(a, e, tolerance(4.0), name + ": q");
      // What write_kv() makes of the expected keys and values.
      const Tensor twin = on_device(expected).tensor;
      const KVLayer other{poisoned({cache_.keys.size(0), c.kv_heads, c.block_size, c.head_dim}, cache_type()),
                          poisoned({cache_.keys.size(0), c.kv_heads, c.block_size, c.head_dim}, cache_type())};
      ops::write_kv(ctx_, twin.slice(1, q_size, kv_size).split_last(c.kv_heads, c.head_dim),
                    twin.slice(1, q_size + kv_size, kv_size).split_last(c.kv_heads, c.head_dim), meta, other);
      for (const auto& [cache, wanted] : {std::pair{cache_.keys, other.keys}, {cache_.values, other.values}}) {
        const std::vector<double> written = read(cache), right = read(wanted);
        a.clear(), e.clear();
        for (size_t i = 0; i < written.size(); ++i) {
          ASSERT_EQ(std::isnan(written[i]), std::isnan(right[i])) << name << ": a slot that is not the step's, or one that was not written";
          if (!std::isnan(right[i])) a.push_back(written[i]), e.push_back(right[i]);
        }
        expect_close(a, e, fp8 ? 0x1p-4 : tolerance(4.0), name + ": cache");
      }
    }
  }
}

// A row alone, in a crowd, and with its prompt in chunks: the same bits.
TEST_P(AttentionConformance, BatchInvariant) {
  if (!on_gpu()) GTEST_SKIP() << "GPUs only; on the CPU it is always so (ops_row_invariance)";
  use({.batch_invariant = true});
  for (const int64_t window : {0, 40}) {
    const std::vector<Span> whole = {{0, 201}, {0, 70}, {0, 333}};
    const Case c{"invariant", 8, 2, 128, 16, whole, window};
    prepare(c);
    const AttentionMetadata all = metadata(whole);
    const Values qkv = write(whole, all);
    const auto attend = [&](const std::vector<Span>& spans, const std::vector<int64_t>& first_rows) {
      const AttentionMetadata meta = metadata(spans);
      const int64_t width = c.heads * c.head_dim;
      const Tensor q = poisoned({meta.num_tokens, width}), out = poisoned({meta.num_tokens, c.heads, c.head_dim});
      int64_t row = 0;
      for (size_t s = 0; s < spans.size(); ++s) {
        const int64_t count = spans[s].to - spans[s].from;
        if (count == 0) continue;
        std::vector<int32_t> rows;
        for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(first_rows[s] + spans[s].from + i));
        ops::gather_rows(ctx_, qkv.tensor.slice(1, 0, width), ints(rows), q.slice(0, row, count));
        row += count;
      }
      ops::paged_attention(ctx_, q.split_last(c.heads, c.head_dim), cache_, meta, {.scale = 0.088, .sliding_window = c.window}, out);
      return read(out);
    };
    const std::vector<int64_t> first = {0, 201, 271};
    const std::vector<double> together = attend(whole, first);
    const auto row_of = [&](const std::vector<double>& values, int64_t row) {
      const auto begin = values.begin() + row * c.heads * c.head_dim;
      return std::vector<double>(begin, begin + c.heads * c.head_dim);
    };
    // The last row of each alone, and with the others' last rows.
    const std::vector<double> lasts = attend({{200, 201}, {69, 70}, {332, 333}}, first);
    EXPECT_EQ(row_of(lasts, 0), row_of(together, 200));
    EXPECT_EQ(row_of(lasts, 1), row_of(together, 270));
    EXPECT_EQ(row_of(lasts, 2), row_of(together, 603));
    const std::vector<double> chunk = attend({{150, 201}, {69, 70}, {300, 333}}, first);
    for (int64_t i = 0; i < 51; ++i) EXPECT_EQ(row_of(chunk, i), row_of(together, 150 + i)) << i;
    for (int64_t i = 0; i < 33; ++i) EXPECT_EQ(row_of(chunk, 52 + i), row_of(together, 271 + 300 + i)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, AttentionConformance, testing::ValuesIn(backends()), backend_name);

}  // namespace
}  // namespace tutti

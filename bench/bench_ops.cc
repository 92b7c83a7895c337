// Time of the CPU's ops: microseconds, GB/s of weights or cache read, GFLOP/s, and the share of the limit (read
// bandwidth, fused multiply-adds or 8-bit dot products) that was measured in the same run.
//   bench_ops [--threads N] [--types BF16,Q8_0] [--rows 1,8,512] [--ops linear,attention,small,pack,decoder] [--seconds S] [--json FILE]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "cpu_limits.h"
#include "ops/cpu/isa.h"
#include "ops/ops.h"
#include "tensor/quantize.h"

using namespace tutti;

namespace {

struct Options {
  int threads = 2;
  std::vector<std::string> types = {"F32", "BF16", "Q8_0", "Q4_0", "Q4_1"};
  std::vector<int> rows = {1, 8, 32, 512};
  std::vector<std::string> ops = {"linear", "attention", "small", "pack", "decoder"};
  double seconds = 0.3;  // of measuring a case
  std::string json;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--threads") o.threads = std::stoi(value);
    else if (flag == "--types") o.types = split(value);
    else if (flag == "--ops") o.ops = split(value);
    else if (flag == "--seconds") o.seconds = std::stod(value);
    else if (flag == "--json") o.json = value;
    else if (flag == "--rows") {
      o.rows.clear();
      for (const auto& part : split(value)) o.rows.push_back(std::stoi(part));
    } else return false;
  }
  return argc % 2 == 1;
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), pool_(options.threads), arena_(size_t{64} << 20, Device::cpu()),
        ctx_{.pool = &pool_, .arena = &arena_}, limits_(bench::measure_limits(pool_)) {
    std::printf("level %s, %d threads: read %.1f GB/s, fma %.1f GFLOP/s, int8 %.1f GOP/s\n",
                std::string(kernel_table(ctx_).name).c_str(), options_.threads, limits_.read_gb_s, limits_.fma_gflop_s,
                limits_.int8_gop_s);
    std::printf("%-34s %10s %10s %8s %9s %7s\n", "case", "best us", "median us", "GB/s", "GFLOP/s", "share");
  }

  void run() {
    for (const auto& op : options_.ops) {
      if (op == "linear") linears();
      if (op == "pack") packs();
      if (op == "decoder") decoders();
      if (op == "attention") attentions();
      if (op == "small") small_ops();
    }
  }

  void write() const {
    Json report = {{"level", kernel_table(ctx_).name}, {"threads", options_.threads},
                   {"limits", {{"read_gb_s", limits_.read_gb_s}, {"fma_gflop_s", limits_.fma_gflop_s}, {"int8_gop_s", limits_.int8_gop_s}}},
                   {"results", results_}};
    std::ofstream(options_.json) << report.dump(1) << "\n";
  }

 private:
  // `bytes` and `flop` of one call; `peak` is what the flops could reach at most.
  void measure(const std::string& name, double bytes, double flop, double peak, const std::function<void(int)>& call) {
    std::vector<double> times;
    for (int i = 0; i < 3; ++i) call(i);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.seconds);
    for (int i = 0; times.size() < 5 || std::chrono::steady_clock::now() < end; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      call(i);
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(times.begin(), times.end());
    const double best = times.front(), median = times[times.size() / 2];
    const double gb_s = bytes / best / 1e9, gflop_s = flop / best / 1e9;
    const double share = std::max(gb_s / limits_.read_gb_s, peak > 0 ? gflop_s / peak : 0.0);
    std::printf("%-34s %10.1f %10.1f %8.2f %9.1f %6.1f%%\n", name.c_str(), best * 1e6, median * 1e6, gb_s, gflop_s, share * 100);
    std::fflush(stdout);
    results_.push_back({{"name", name}, {"best_us", best * 1e6}, {"median_us", median * 1e6}, {"gb_s", gb_s},
                        {"gflop_s", gflop_s}, {"share", share}});
  }

  static Tensor floats(std::initializer_list<int64_t> shape) {
    Tensor t = Tensor::empty(shape, DType::kF32);
    uint32_t state = 12345;
    for (int64_t i = 0; i < t.numel(); ++i) {
      state = state * 1664525 + 1013904223;
      t.data_as<float>()[i] = static_cast<float>(state >> 8) / (1 << 24) - 0.5f;
    }
    return t;
  }

  // Some rows, repeated. Of an ordinary size: numbers below the smallest normal float would cost kernels extra time.
  static Tensor weight(DType dtype, int64_t rows, int64_t k) {
    constexpr int64_t kDistinct = 8;
    const Tensor values = floats({std::min(rows, kDistinct), k}), t = Tensor::empty({rows, k}, dtype);
    for (int64_t r = 0; r < rows; ++r) {
      if (r >= kDistinct) {
        std::memcpy(t.row<uint8_t>(r), t.row<uint8_t>(r - kDistinct), t.stride_bytes(0));
      } else if (dtype == DType::kF32) {
        std::memcpy(t.row<uint8_t>(r), values.row<uint8_t>(r), t.stride_bytes(0));
      } else {
        quantize_row(values.row<float>(r), k, dtype, t.row<uint8_t>(r));
      }
    }
    return t;
  }

  void linears() {
    struct Shape {
      const char* name;
      int64_t k, n;
      bool fused;
    };
    const Shape shapes[] = {{"2048x2048", 2048, 2048, false}, {"8192x2048", 8192, 2048, false}, {"gate_up 2048x8192", 2048, 8192, true}};
    for (const auto& type : options_.types) {
      const DType dtype = dtype_from_name(type).value();
      for (const Shape& shape : shapes) {
        const Tensor w = weight(dtype, shape.n, shape.k);
        std::vector<Tensor> pieces(shape.fused ? 2 : 1, w);
        // Enough copies that one row at a time never finds its weights in a cache.
        std::vector<PackedWeight> copies;
        for (size_t bytes = 0; bytes < (size_t{160} << 20); bytes += copies.back().bytes()) copies.push_back(ops::pack_weight(ctx_, pieces));
        const double bytes = static_cast<double>(copies[0].bytes());
        for (int rows : options_.rows) {
          const Tensor x = floats({rows, shape.k}), out = Tensor::empty({rows, shape.n}, DType::kF32);
          const double flop = 2.0 * rows * static_cast<double>(shape.k * shape.n * (shape.fused ? 2 : 1));
          const double peak = is_quantized(dtype) && limits_.int8_gop_s > 0 ? limits_.int8_gop_s : limits_.fma_gflop_s;
          measure(type + " " + shape.name + " rows " + std::to_string(rows), bytes, flop, peak, [&](int i) {
            const PackedWeight& packed = copies[static_cast<size_t>(i) % copies.size()];
            if (shape.fused) {
              ops::gate_up_silu(ctx_, x, packed, out);
            } else {
              ops::linear(ctx_, x, packed, Tensor(), out);
            }
          });
        }
      }
    }
  }

  void packs() {
    for (const auto& type : options_.types) {
      const Tensor w = weight(dtype_from_name(type).value(), 2048, 2048);
      measure("pack " + type + " 2048x2048", 2 * static_cast<double>(w.bytes()), 0, 0,
              [&](int) { ops::pack_weight(ctx_, std::span(&w, 1)); });
    }
  }

  void attention(DType cache_type, int seqs, int64_t query_len, int64_t context) {
    const int64_t heads = 32, kv_heads = 8, head_dim = 64, block = 16, blocks = (context + block - 1) / block;
    KVLayer cache{Tensor::zeros({seqs * blocks, kv_heads, block, head_dim}, cache_type),
                  Tensor::zeros({seqs * blocks, kv_heads, block, head_dim}, cache_type)};
    AttentionMetadata meta;
    meta.num_seqs = seqs;
    meta.num_tokens = seqs * query_len;
    meta.query_start = Tensor::empty({seqs + 1}, DType::kI32);
    meta.seq_lens = Tensor::empty({seqs}, DType::kI32);
    meta.block_table = Tensor::empty({seqs, blocks}, DType::kI32);
    for (int s = 0; s <= seqs; ++s) meta.query_start.data_as<int32_t>()[s] = static_cast<int32_t>(s * query_len);
    for (int s = 0; s < seqs; ++s) meta.seq_lens.data_as<int32_t>()[s] = static_cast<int32_t>(context);
    for (int64_t i = 0; i < seqs * blocks; ++i) meta.block_table.data_as<int32_t>()[i] = static_cast<int32_t>(i);
    const Tensor q = floats({meta.num_tokens, heads, head_dim}), out = Tensor::empty({meta.num_tokens, heads, head_dim}, DType::kF32);
    const double pairs = static_cast<double>(seqs) * static_cast<double>(query_len) * (static_cast<double>(context) - (static_cast<double>(query_len) - 1) / 2);
    const std::string name = "attention " + std::string(dtype_name(cache_type)) + " " + std::to_string(seqs) + "x" +
                             std::to_string(query_len) + " of " + std::to_string(context);
    measure(name, static_cast<double>(cache.keys.bytes() * 2), 4 * pairs * static_cast<double>(heads * head_dim), limits_.fma_gflop_s,
            [&](int) { ops::paged_attention(ctx_, q, cache, meta, {.scale = 0.125}, out); });
  }

  void attentions() {
    for (DType type : {DType::kF32, DType::kBF16}) {
      attention(type, 1, 1, 512);
      attention(type, 1, 1, 8192);
      attention(type, 8, 1, 1024);
      attention(type, 1, 512, 512);
    }
  }

  // All ops of a decoder's layers at one step, in order, the output projection included: what a model spends here.
  void decoder(const char* name, DType dtype, int layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn,
               int64_t vocab, int64_t rows, int64_t context) {
    const int64_t head_dim = 64, block = 16, blocks = (context + block - 1) / block;
    const auto pack = [&](std::vector<std::pair<int64_t, int64_t>> shapes) {
      std::vector<Tensor> pieces;
      for (const auto& [n, k] : shapes) pieces.push_back(weight(dtype, n, k));
      return ops::pack_weight(ctx_, pieces);
    };
    struct Layer {
      PackedWeight qkv, out, gate_up, down;
      KVLayer cache;
    };
    std::vector<Layer> stack;
    double bytes = 0;
    for (int i = 0; i < layers; ++i) {
      stack.push_back({pack({{heads * head_dim, hidden}, {kv_heads * head_dim, hidden}, {kv_heads * head_dim, hidden}}),
                       pack({{hidden, heads * head_dim}}), pack({{ffn, hidden}, {ffn, hidden}}), pack({{hidden, ffn}}),
                       {Tensor::zeros({blocks, kv_heads, block, head_dim}, DType::kBF16),
                        Tensor::zeros({blocks, kv_heads, block, head_dim}, DType::kBF16)}});
      const Layer& l = stack.back();
      bytes += static_cast<double>(l.qkv.bytes() + l.out.bytes() + l.gate_up.bytes() + l.down.bytes() + 2 * l.cache.keys.bytes());
    }
    const PackedWeight head = pack({{vocab, hidden}});
    bytes += static_cast<double>(head.bytes());
    AttentionMetadata meta{.num_seqs = 1, .num_tokens = rows};
    meta.query_start = Tensor::zeros({2}, DType::kI32);
    meta.query_start.data_as<int32_t>()[1] = static_cast<int32_t>(rows);
    meta.seq_lens = Tensor::zeros({1}, DType::kI32);
    meta.seq_lens.data_as<int32_t>()[0] = static_cast<int32_t>(context);
    meta.block_table = Tensor::zeros({1, blocks}, DType::kI32);
    for (int64_t b = 0; b < blocks; ++b) meta.block_table.data_as<int32_t>()[b] = static_cast<int32_t>(b);
    meta.positions = Tensor::zeros({rows}, DType::kI32);
    meta.slot_mapping = Tensor::zeros({rows}, DType::kI64);
    for (int64_t r = 0; r < rows; ++r) {
      meta.positions.data_as<int32_t>()[r] = static_cast<int32_t>(context - rows + r);
      meta.slot_mapping.data_as<int64_t>()[r] = context - rows + r;
    }
    const Tensor residual = floats({rows, hidden}), x = floats({rows, hidden}), norm = floats({hidden}), table = floats({context, 2, head_dim / 2});
    const Tensor qkv = Tensor::empty({rows, (heads + 2 * kv_heads) * head_dim}, DType::kF32);
    const Tensor q = qkv.slice(1, 0, heads * head_dim).split_last(heads, head_dim);
    const Tensor k = qkv.slice(1, heads * head_dim, kv_heads * head_dim).split_last(kv_heads, head_dim);
    const Tensor v = qkv.slice(1, (heads + kv_heads) * head_dim, kv_heads * head_dim).split_last(kv_heads, head_dim);
    const Tensor attended = Tensor::empty({rows, heads * head_dim}, DType::kF32), inner = Tensor::empty({rows, ffn}, DType::kF32);
    const Tensor logits = Tensor::empty({1, vocab}, DType::kF32);
    const double flop = 2.0 * static_cast<double>(rows * layers * (hidden * (2 * heads + 2 * kv_heads) * head_dim + 3 * hidden * ffn) + vocab * hidden);
    const double peak = is_quantized(dtype) && limits_.int8_gop_s > 0 ? limits_.int8_gop_s : limits_.fma_gflop_s;
    measure(std::string(name) + " " + std::string(dtype_name(dtype)) + " rows " + std::to_string(rows), bytes, flop, peak, [&](int) {
      for (const Layer& l : stack) {
        ops::add_rms_norm(ctx_, residual, x, norm, 1e-5, x);
        ops::linear(ctx_, x, l.qkv, Tensor(), qkv);
        ops::rope(ctx_, q, meta.positions, table, RopeLayout::kInterleaved);
        ops::rope(ctx_, k, meta.positions, table, RopeLayout::kInterleaved);
        ops::write_kv(ctx_, k, v, meta, l.cache);
        ops::paged_attention(ctx_, q, l.cache, meta, {.scale = 0.125}, attended.split_last(heads, head_dim));
        ops::linear(ctx_, attended, l.out, Tensor(), x);
        ops::add_rms_norm(ctx_, residual, x, norm, 1e-5, x);
        ops::gate_up_silu(ctx_, x, l.gate_up, inner);
        ops::linear(ctx_, inner, l.down, Tensor(), x);
      }
      ops::linear(ctx_, x.slice(0, rows - 1, 1), head, Tensor(), logits);
    });
  }

  void decoders() {
    for (const auto& type : options_.types) {
      const DType dtype = dtype_from_name(type).value();
      for (int rows : options_.rows) {
        decoder("SmolLM2-135M", dtype, 30, 576, 9, 3, 1536, 49152, rows, std::max(rows, 128));
        decoder("Llama-1B", dtype, 16, 2048, 32, 8, 8192, 32000, rows, std::max(rows, 128));
      }
    }
  }

  void small_ops() {
    for (int64_t rows : {1, 512}) {
      const Tensor x = floats({rows, 2048}), y = floats({rows, 2048}), w = floats({2048}), out = Tensor::empty({rows, 2048}, DType::kF32);
      const std::string suffix = " 2048 rows " + std::to_string(rows);
      const double bytes = static_cast<double>(x.bytes());
      measure("rms_norm" + suffix, 2 * bytes, 0, 0, [&](int) { ops::rms_norm(ctx_, x, w, 1e-5, out); });
      measure("add_rms_norm" + suffix, 4 * bytes, 0, 0, [&](int) { ops::add_rms_norm(ctx_, x, y, w, 1e-5, out); });
      const Tensor heads = floats({rows, 40, 64}), table = floats({1, 2, 32});
      Tensor positions = Tensor::zeros({rows}, DType::kI32);
      for (RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
        const std::string name = layout == RopeLayout::kHalf ? "rope half" : "rope interleaved";
        measure(name + " 40x64 rows " + std::to_string(rows), static_cast<double>(heads.bytes()), 0, 0,
                [&](int) { ops::rope(ctx_, heads, positions, table, layout); });
      }
    }
  }

  Options options_;
  ThreadPool pool_;
  Arena arena_;
  Context ctx_;
  bench::CpuLimits limits_;
  Json results_ = Json::array();
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: bench_ops [--threads N] [--types BF16,Q8_0] [--rows 1,8,512] [--ops linear,attention,small,pack,decoder] "
                         "[--seconds S] [--json FILE]\n");
    return 2;
  }
  Bench bench(options);
  bench.run();
  if (!options.json.empty()) bench.write();
}

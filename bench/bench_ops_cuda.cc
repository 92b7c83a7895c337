// Times of the CUDA backend: single products, attention and small ops, and whole steps of a model's shape as CUDA graphs,
// each beside its floor (bytes over the memory's read bandwidth, operations over the matrix units' rate).
//   bench_ops_cuda [--shape llama-3-8b] [--layers N] [--parts ops,attention,decode,prefill] [--batches 1,8,32] [--context 512]
//                  [--dtype bf16|fp8] [--kv-dtype bf16|fp8] [--mode plain|weight-only|batch-invariant]
//                  [--read-tb-s 4.2] [--tflop-s 790] [--choices FILE] [--json FILE]
// --choices: which kernels products take, as a start of the program keeps it; what is not in it is timed and added.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "decode_chain.h"

using namespace tutti;

namespace {

const bench::ModelShape kShapes[] = {
    {"llama-3-8b", 32, 4096, 32, 8, 128, 14336, 128256},
    {"llama-2-70b", 80, 8192, 64, 8, 128, 28672, 32000},
    {"llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256},
};

struct Options {
  std::string shape = "llama-3-8b", json, mode = "plain", choices;
  bench::ChainOptions chain;
  std::vector<std::string> parts = {"ops", "attention", "decode", "prefill"};
  std::vector<int> batches = {1, 8, 32, 64, 128, 256};
  int layers = 0, context = 512;
  double read_tb_s = 4.2, tflop_s = 790;
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
    if (flag == "--shape") o.shape = value;
    else if (flag == "--layers") o.layers = std::stoi(value);
    else if (flag == "--parts") o.parts = split(value);
    else if (flag == "--context") o.context = std::stoi(value);
    else if (flag == "--dtype") o.chain.fp8 = value == "fp8";
    else if (flag == "--kv-dtype") o.chain.fp8_cache = value == "fp8";
    else if (flag == "--mode") o.mode = value;
    else if (flag == "--read-tb-s") o.read_tb_s = std::stod(value);
    else if (flag == "--tflop-s") o.tflop_s = std::stod(value);
    else if (flag == "--choices") o.choices = value;
    else if (flag == "--json") o.json = value;
    else if (flag == "--batches") {
      o.batches.clear();
      for (const auto& part : split(value)) o.batches.push_back(std::stoi(part));
    } else return false;
  }
  o.chain.cuda.batch_invariant = o.mode == "batch-invariant";
  o.chain.cuda.fp8_weight_only = o.mode == "weight-only";
  return argc % 2 == 1;
}

class Bench {
 public:
  Bench(const Options& options, const bench::ModelShape& shape)
      : o_(options), shape_(shape), chain_(shape, options.chain, 8192, cached_tokens(options)) {}

  void run() {
    CudaContext& cuda = *chain_.ctx().cuda;
    if (!o_.choices.empty() && std::filesystem::exists(o_.choices)) take_kernel_choices(cuda, read_file(o_.choices), /*all=*/true);
    for (const std::string& part : o_.parts) {
      if (part == "ops") products();
      if (part == "attention") attention();
      if (part == "decode") decode();
      if (part == "prefill") prefill();
    }
    if (!o_.choices.empty()) write_file(o_.choices, kernel_choices(cuda));
  }

  Json report() const {
    return {{"shape", shape_.name}, {"layers", shape_.layers}, {"dtype", o_.chain.fp8 ? "FP8" : "BF16"},
            {"kv_dtype", o_.chain.fp8_cache ? "FP8" : "BF16"}, {"mode", o_.mode}, {"context", o_.context},
            {"read_tb_s", o_.read_tb_s}, {"tflop_s", o_.tflop_s}, {"ops", ops_}, {"attention", attention_}, {"decode", decode_}, {"prefill", prefill_}};
  }

 private:
  static int64_t cached_tokens(const Options& o) {
    int64_t most = 16384;
    for (int batch : o.batches) most = std::max<int64_t>(most, int64_t{batch} * (o.context + 16));
    return most;
  }

  // Enough different weights that none is found in the L2.
  void products() {
    struct Product {
      const char* name;
      std::vector<int64_t> rows;
      int64_t k;
      bool gated;
    };
    const Product all[] = {{"qkv", {shape_.qkv_rows()}, shape_.hidden, false},
                           {"o", {shape_.hidden}, shape_.heads * shape_.head_dim, false},
                           {"gate_up", {shape_.intermediate, shape_.intermediate}, shape_.hidden, true},
                           {"down", {shape_.hidden}, shape_.intermediate, false},
                           {"head", {shape_.vocab}, shape_.hidden, false}};
    std::printf("%-10s %6s %10s %8s %9s %7s\n", "product", "tokens", "us", "TB/s", "TFLOP/s", "share");
    for (const Product& p : all) {
      std::vector<PackedWeight> weights;
      for (double bytes = 0; bytes < 1e9; bytes += static_cast<double>(weights.back().bytes())) {
        weights.push_back(chain_.random_weight(p.rows, p.k));
      }
      const auto count = static_cast<double>(weights.size());
      for (int64_t tokens : {1, 2, 4, 8, 16, 32, 64, 128, 256, 2048}) {
        const int64_t n = p.gated ? p.rows[0] : weights[0].out_features;
        const DType type = p.rows[0] == shape_.vocab ? DType::kF32 : DType::kBF16;
        const Tensor x = chain_.random({tokens, p.k}, 1.0), out = Tensor::empty({tokens, n}, type, chain_.ctx().device);
        const bench::Timing t = bench::time_graph(chain_.stream(), 5, [&] {
          for (const PackedWeight& w : weights) {
            if (p.gated) ops::gate_up_silu(chain_.ctx(), x, w, out);
            else ops::linear(chain_.ctx(), x, w, Tensor(), out);
          }
        });
        const double us = 1e3 * t.median_ms / count, bytes = static_cast<double>(weights[0].bytes() + x.bytes() + out.bytes());
        const double flop = 2.0 * static_cast<double>(tokens * weights[0].out_features * p.k);
        const double floor = std::max(bytes / o_.read_tb_s, flop / o_.tflop_s) / 1e6;
        std::printf("%-10s %6ld %10.2f %8.2f %9.1f %6.1f%%\n", p.name, tokens, us, bytes / us / 1e6, flop / us / 1e6, 100 * floor / us);
        ops_.push_back({{"product", p.name}, {"tokens", tokens}, {"us", us}, {"tb_s", bytes / us / 1e6}, {"tflop_s", flop / us / 1e6},
                        {"share", floor / us}});
      }
    }
  }

  // Microseconds a layer.
  void attention() {
    std::printf("%-10s %15s %10s %8s %9s %7s %13s\n", "attention", "seqs x new of", "us", "TB/s", "TFLOP/s", "share", "small ops us");
    const auto measure = [&](int seqs, int query_len, int context) {
      const double us = 1e3 * chain_.time_attention(seqs, query_len, context, 5).median_ms / shape_.layers;
      const double small = 1e3 * chain_.time_small_ops(seqs, query_len, context, 5).median_ms / shape_.layers;
      const double bytes = shape_.kv_bytes_per_token(kv_element()) / shape_.layers * seqs * context, width = static_cast<double>(shape_.heads * shape_.head_dim);
      const double flop = 4.0 * seqs * query_len * (context - (query_len - 1) / 2.0) * width;
      const double floor = std::max(bytes / o_.read_tb_s, flop / o_.tflop_s) / 1e6;
      std::printf("%-10s %4d x %4d %5d %10.2f %8.2f %9.1f %6.1f%% %13.2f\n", "", seqs, query_len, context, us, bytes / us / 1e6, flop / us / 1e6,
                  100 * floor / us, small);
      attention_.push_back({{"seqs", seqs}, {"query_len", query_len}, {"context", context}, {"us", us}, {"share", floor / us}, {"small_ops_us", small}});
    };
    for (int batch : o_.batches) measure(batch, 1, o_.context);
    measure(1, 1, 8000);
    for (int length : {512, 2048, 8192}) measure(1, length, length);
    measure(4, 512, 2048);
  }

  double kv_element() const { return o_.chain.fp8_cache ? 1 : 2; }

  // Weights and cache read once at the memory's bandwidth, or, where that is more, the products at the matrix units' rate
  // and the cache after them.
  double floor_ms(double tokens, double kv_tokens) const {
    const double kv = shape_.kv_bytes_per_token(kv_element()) * kv_tokens / o_.read_tb_s / 1e9;
    return std::max(shape_.weight_bytes(o_.chain.fp8 ? 1 : 2) / o_.read_tb_s / 1e9, shape_.flop_per_token() * tokens / o_.tflop_s / 1e9) + kv;
  }

  void decode() {
    std::printf("%-8s %6s %9s %10s %9s %7s %12s\n", "decode", "batch", "ms", "tokens/s", "floor ms", "share", "b us/layer");
    for (int batch : o_.batches) {
      const bench::Timing t = chain_.time_step(batch, 1, o_.context, 20);
      const double floor = floor_ms(batch, static_cast<double>(batch) * o_.context), rate = 1e3 * batch / t.median_ms;
      const double b = 1e3 * (t.median_ms - floor) / shape_.layers;
      std::printf("%-8s %6d %9.3f %10.1f %9.3f %6.1f%% %12.2f\n", "", batch, t.median_ms, rate, floor, 100 * floor / t.median_ms, b);
      decode_.push_back({{"batch", batch}, {"ms", t.median_ms}, {"best_ms", t.best_ms}, {"tokens_s", rate}, {"floor_ms", floor},
                         {"share", floor / t.median_ms}, {"b_us_per_layer", b}});
    }
  }

  void prefill() {
    std::printf("%-8s %14s %9s %10s %7s\n", "prefill", "seqs x tokens", "ms", "tokens/s", "share");
    for (const auto& [seqs, length] : {std::pair{1, 512}, {1, 2048}, {4, 2048}, {16, 512}, {1, 8192}}) {
      const bench::Timing t = chain_.time_step(seqs, length, length, 4);
      const double tokens = static_cast<double>(seqs) * length, pairs = tokens * (length + 1) / 2;
      const double flop = shape_.flop_per_token() * tokens + 4.0 * shape_.layers * pairs * static_cast<double>(shape_.heads * shape_.head_dim) -
                          2.0 * static_cast<double>(shape_.vocab * shape_.hidden) * (tokens - seqs);
      const double floor = flop / o_.tflop_s / 1e9, rate = 1e3 * tokens / t.median_ms;
      std::printf("%-8s %6d x %5d %9.3f %10.1f %6.1f%%\n", "", seqs, length, t.median_ms, rate, 100 * floor / t.median_ms);
      prefill_.push_back({{"seqs", seqs}, {"length", length}, {"ms", t.median_ms}, {"tokens_s", rate}, {"share", floor / t.median_ms}});
    }
  }

  Options o_;
  bench::ModelShape shape_;
  bench::DecodeChain chain_;
  Json ops_ = Json::array(), attention_ = Json::array(), decode_ = Json::array(), prefill_ = Json::array();
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const auto* shape = std::begin(kShapes);
  if (parse(argc, argv, options)) {
    while (shape != std::end(kShapes) && shape->name != options.shape) ++shape;
  } else {
    shape = std::end(kShapes);
  }
  if (shape == std::end(kShapes)) {
    std::fprintf(stderr, "usage: bench_ops_cuda [--shape llama-3-8b|llama-2-70b|llama-3.2-1b] [--layers N] [--parts ops,attention,decode,prefill]\n"
                         "                      [--batches 1,8,32] [--context 512] [--dtype bf16|fp8] [--kv-dtype bf16|fp8]\n"
                 "                      [--mode plain|weight-only|batch-invariant] [--read-tb-s 4.2] [--tflop-s 790] [--choices FILE] [--json FILE]\n");
    return 2;
  }
  try {
    bench::ModelShape chosen = *shape;
    if (options.layers > 0) chosen.layers = options.layers;
    Bench bench(options, chosen);
    bench.run();
    if (!options.json.empty()) std::ofstream(options.json) << bench.report().dump(1) << "\n";
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_ops_cuda: %s\n", e.what());
    return 1;
  }
}

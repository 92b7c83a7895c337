#include "decode_chain.h"

#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/check.h"
#include "base/error.h"
#include "ops/cuda/linear_call.h"
#include "tensor/device_memory.h"
#include "tensor/half.h"

namespace tutti::bench {
namespace {

constexpr int64_t kBlockSize = 16;
constexpr int64_t kMaxPositions = 8192;
constexpr size_t kPoolBytes = size_t{32} << 20;

void check(cudaError_t status) {
  if (status != cudaSuccess) throw DeviceError(cudaGetErrorString(status));
}

}  // namespace

double ModelShape::weight_bytes(double element) const {
  const auto of_layer = static_cast<double>(qkv_rows() * hidden + heads * head_dim * hidden + 3 * intermediate * hidden);
  return element * (layers * of_layer + static_cast<double>(vocab * hidden));
}

Timing time_graph(cudaStream_t stream, int repeats, const std::function<void()>& calls) {
  calls();  // chooses algorithms, which cannot be timed during capture
  check(cudaStreamSynchronize(stream));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  calls();
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<cudaEvent_t> events(static_cast<size_t>(repeats) + 1);
  for (cudaEvent_t& e : events) check(cudaEventCreate(&e));
  for (int i = 0; i < 3; ++i) check(cudaGraphLaunch(exec, stream));
  check(cudaEventRecord(events[0], stream));
  for (int i = 0; i < repeats; ++i) {
    check(cudaGraphLaunch(exec, stream));
    check(cudaEventRecord(events[static_cast<size_t>(i) + 1], stream));
  }
  check(cudaStreamSynchronize(stream));
  std::vector<double> times;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
    times.push_back(ms);
  }
  for (cudaEvent_t e : events) check(cudaEventDestroy(e));
  check(cudaGraphExecDestroy(exec));
  check(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

DecodeChain::DecodeChain(const ModelShape& shape, const ChainOptions& options, int64_t max_tokens, int64_t cached_tokens)
    : shape_(shape), options_(options), cuda_(make_cuda_context(Device::cuda(0), DType::kBF16, options.cuda)) {
  const int64_t widest = std::max({shape.qkv_rows(), 2 * shape.intermediate, 4 * shape.hidden});
  arena_ = std::make_unique<Arena>(static_cast<size_t>(max_tokens * widest) * 8 + (size_t{512} << 20), Device::cuda(0));
  ctx_.device = Device::cuda(0);
  ctx_.arena = arena_.get();
  ctx_.cuda = cuda_.get();
  const int64_t blocks = (cached_tokens + kBlockSize - 1) / kBlockSize;
  const auto norm = [&] {
    std::vector<float> ones(static_cast<size_t>(shape.hidden), 1.0f);
    const Tensor t = Tensor::empty({shape.hidden}, DType::kF32, ctx_.device);
    cuda::copy_async(t.data(), ones.data(), t.bytes(), stream());
    cuda::synchronize(stream());
    return t;
  };
  for (int i = 0; i < shape.layers; ++i) {
    Layer layer;
    layer.qkv = random_weight({shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.kv_heads * shape.head_dim}, shape.hidden);
    layer.o = random_weight({shape.hidden}, shape.heads * shape.head_dim);
    layer.gate_up = random_weight({shape.intermediate, shape.intermediate}, shape.hidden);
    layer.down = random_weight({shape.hidden}, shape.intermediate);
    layer.input_norm = norm();
    layer.post_norm = norm();
    const DType cache = options.fp8_cache ? DType::kF8E4M3 : DType::kBF16;
    layer.kv.keys = random({blocks, shape.kv_heads, kBlockSize, shape.head_dim}, 1.0, cache);
    layer.kv.values = random({blocks, shape.kv_heads, kBlockSize, shape.head_dim}, 1.0, cache);
    layers_.push_back(std::move(layer));
  }
  embedding_ = random_table(shape.vocab, shape.hidden);
  head_ = random_weight({shape.vocab}, shape.hidden);
  norm_ = norm();
  std::vector<float> angles;
  for (int64_t p = 0; p < kMaxPositions; ++p) {
    for (const bool sine : {false, true}) {
      for (int64_t i = 0; i < shape.head_dim / 2; ++i) {
        const double angle = static_cast<double>(p) * std::pow(500000.0, -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_dim));
        angles.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
      }
    }
  }
  cos_sin_ = Tensor::empty({kMaxPositions, 2, shape.head_dim / 2}, DType::kF32, ctx_.device);
  cuda::copy_async(cos_sin_.data(), angles.data(), cos_sin_.bytes(), stream());
  cuda::synchronize(stream());
}

DecodeChain::~DecodeChain() { (void)cudaStreamSynchronize(stream()); }

void DecodeChain::fill(void* data, size_t bytes, const Tensor& pool) {
  auto* to = static_cast<std::byte*>(data);
  for (size_t begin = 0; begin < bytes; begin += pool.bytes()) {
    cuda::copy_async(to + begin, pool.data(), std::min(pool.bytes(), bytes - begin), stream());
  }
}

Tensor DecodeChain::random(std::initializer_list<int64_t> shape, double deviation, DType dtype) {
  const auto known = std::find_if(pools_.begin(), pools_.end(),
                                  [&](const Pool& p) { return p.deviation == deviation && p.values.dtype() == dtype; });
  Tensor pool;
  if (known != pools_.end()) {
    pool = known->values;
  } else {
    std::mt19937 engine(static_cast<unsigned>(pools_.size()) + 1);
    std::normal_distribution<float> normal(0.0f, static_cast<float>(deviation));
    const auto count = static_cast<int64_t>(kPoolBytes / dtype_bytes(dtype, 1));
    const Tensor host = Tensor::empty({count}, dtype);
    for (int64_t i = 0; i < count; ++i) {
      if (dtype == DType::kBF16) host.data_as<uint16_t>()[i] = float_to_bfloat16(normal(engine));
      else host.data_as<__nv_fp8_e4m3>()[i] = __nv_fp8_e4m3(normal(engine));
    }
    pool = Tensor::empty({count}, dtype, ctx_.device);
    cuda::copy_async(pool.data(), host.data(), pool.bytes(), stream());
    cuda::synchronize(stream());
    pools_.push_back({deviation, pool});
  }
  const Tensor t = Tensor::empty(shape, dtype, ctx_.device);
  fill(t.data(), t.bytes(), pool);
  return t;
}

PackedWeight DecodeChain::random_table(int64_t rows, int64_t k) {
  const auto all = std::make_shared<Tensor>(random({rows * k}, 1 / std::sqrt(static_cast<double>(k))));
  PackedWeight w;
  w.out_features = rows;
  w.in_features = k;
  w.segments.push_back({DType::kBF16, rows, cuda::kPlain, Tensor::view(all->data(), {rows * k * 2}, DType::kU8, ctx_.device, all)});
  return w;
}

PackedWeight DecodeChain::random_weight(std::vector<int64_t> rows, int64_t k) {
  PackedWeight w;
  w.in_features = k;
  for (int64_t r : rows) w.out_features += r;
  const double deviation = 1 / std::sqrt(static_cast<double>(k));
  const int64_t elements = w.out_features * k;
  const auto element = static_cast<int64_t>(options_.fp8 ? 1 : 2);
  std::shared_ptr<Tensor> all;
  if (options_.fp8) {  // elements of about 1, and a scale for each row behind them
    all = std::make_shared<Tensor>(random({cuda::scales_offset(elements) + 4 * w.out_features}, 1.0, DType::kF8E4M3));
    const std::vector<float> scales(static_cast<size_t>(w.out_features), static_cast<float>(deviation));
    cuda::copy_async(all->data_as<std::byte>() + cuda::scales_offset(elements), scales.data(), 4 * scales.size(), stream());
    cuda::synchronize(stream());
  } else {
    all = std::make_shared<Tensor>(random({elements}, deviation));
  }
  int64_t begin = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t bytes = i + 1 == rows.size() ? static_cast<int64_t>(all->bytes()) - begin : rows[i] * k * element;
    w.segments.push_back({options_.fp8 ? DType::kF8E4M3 : DType::kBF16, rows[i], options_.fp8 ? cuda::kRowScaled : cuda::kPlain,
                          Tensor::view(all->data_as<std::byte>() + begin, {bytes}, DType::kU8, ctx_.device, all)});
    begin += bytes;
  }
  return w;
}

Tensor DecodeChain::ints(const std::vector<int32_t>& values) {
  const Tensor t = Tensor::empty({static_cast<int64_t>(values.size())}, DType::kI32, ctx_.device);
  cuda::copy_async(t.data(), values.data(), t.bytes(), stream());
  cuda::synchronize(stream());
  return t;
}

struct DecodeChain::Step {
  AttentionMetadata meta;
  Tensor ids;
  Tensor last_rows;
};

// What models/decoder.cc calls, in its order.
void DecodeChain::run(const Step& step) {
  arena_->reset();
  const int64_t n = step.meta.num_tokens, q_size = shape_.heads * shape_.head_dim;
  const Tensor hidden = arena_->allocate({n, shape_.hidden}, DType::kBF16), qkv = arena_->allocate({n, shape_.qkv_rows()}, DType::kBF16);
  const Tensor heads = arena_->allocate({n, shape_.heads, shape_.head_dim}, DType::kBF16);
  const Tensor inner = arena_->allocate({n, shape_.intermediate}, DType::kBF16);
  const Tensor q = qkv.slice(1, 0, q_size).split_last(shape_.heads, shape_.head_dim);
  const ops::AttentionParams params{.scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim))};
  const Tensor scaled = arena_->allocate({n, shape_.hidden}, DType::kBF16), squares = arena_->allocate({n, ops::norm_parts(shape_.hidden)}, DType::kF32);
  bool left = false;
  const auto normed = [&](const Tensor& weight) {
    ops::Input input(hidden, weight, 1e-5);
    if (left) input.scaled = scaled, input.squares = squares;
    return input;
  };
  ops::embedding(ctx_, {step.ids, Tensor()}, embedding_, 0, hidden);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const Tensor next = i + 1 < layers_.size() ? layers_[i + 1].input_norm : norm_;
    ops::qkv_rope_write_kv(ctx_, normed(layer.input_norm), layer.qkv, Tensor(), cos_sin_, RopeLayout::kHalf, step.meta, layer.kv, qkv);
    ops::paged_attention(ctx_, q, layer.kv, step.meta, params, heads);
    left = ops::linear_add(ctx_, heads.reshape({n, q_size}), layer.o, Tensor(), hidden, {layer.post_norm, scaled, squares, &layer.gate_up});
    ops::gate_up_silu(ctx_, normed(layer.post_norm), layer.gate_up, inner);
    left = ops::linear_add(ctx_, inner, layer.down, Tensor(), hidden, {next, scaled, squares});
  }
  const int64_t seqs = step.last_rows.size(0);
  const Tensor logits = arena_->allocate({seqs, shape_.vocab}, DType::kF32);
  if (seqs == n) return ops::linear(ctx_, normed(norm_), head_, Tensor(), logits);
  const Tensor last = arena_->allocate({seqs, shape_.hidden}, DType::kBF16);
  ops::gather_rows(ctx_, hidden, step.last_rows, last);
  ops::linear(ctx_, {last, norm_, 1e-5}, head_, Tensor(), logits);
}

DecodeChain::Step DecodeChain::make_step(int seqs, int query_len, int context) {
  Step step;
  std::vector<int32_t> query_start = {0}, lens, table, positions, ids, last;
  std::vector<int64_t> slots;
  const auto blocks = static_cast<int32_t>((context + kBlockSize - 1) / kBlockSize);
  CHECK_LE(int64_t{seqs} * blocks, layers_[0].kv.keys.size(0));
  CHECK_LE(context, kMaxPositions);
  for (int s = 0; s < seqs; ++s) {
    for (int32_t b = 0; b < blocks; ++b) table.push_back(b * seqs + s);  // neighbours in a sequence are not in memory
    for (int p = context - query_len; p < context; ++p) {
      positions.push_back(p);
      ids.push_back((s * 7919 + p * 104729) % static_cast<int32_t>(shape_.vocab));
      slots.push_back(static_cast<int64_t>(p / kBlockSize * seqs + s) * kBlockSize + p % kBlockSize);
    }
    query_start.push_back(static_cast<int32_t>(positions.size()));
    last.push_back(static_cast<int32_t>(positions.size()) - 1);
    lens.push_back(context);
  }
  step.meta.num_seqs = seqs;
  step.meta.num_tokens = static_cast<int64_t>(positions.size());
  step.meta.max_query_len = query_len;
  step.meta.max_seq_len = context;
  step.meta.query_start = ints(query_start);
  step.meta.seq_lens = ints(lens);
  step.meta.block_table = ints(table).reshape({seqs, blocks});
  step.meta.positions = ints(positions);
  step.meta.slot_mapping = Tensor::empty({step.meta.num_tokens}, DType::kI64, ctx_.device);
  cuda::copy_async(step.meta.slot_mapping.data(), slots.data(), step.meta.slot_mapping.bytes(), stream());
  cuda::synchronize(stream());
  step.ids = ints(ids);
  step.last_rows = ints(last);
  return step;
}

Timing DecodeChain::time_step(int seqs, int query_len, int context, int repeats) {
  const Step step = make_step(seqs, query_len, context);
  return time_graph(stream(), repeats, [&] { run(step); });
}

Timing DecodeChain::time_attention(int seqs, int query_len, int context, int repeats) {
  const Step step = make_step(seqs, query_len, context);
  const Tensor q = random({step.meta.num_tokens, shape_.heads, shape_.head_dim}, 1.0);
  const Tensor out = Tensor::empty({step.meta.num_tokens, shape_.heads, shape_.head_dim}, DType::kBF16, ctx_.device);
  const ops::AttentionParams params{.scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim))};
  return time_graph(stream(), repeats, [&] {
    arena_->reset();
    for (const Layer& layer : layers_) ops::paged_attention(ctx_, q, layer.kv, step.meta, params, out);
  });
}

Timing DecodeChain::time_small_ops(int seqs, int query_len, int context, int repeats) {
  const Step step = make_step(seqs, query_len, context);
  const int64_t n = step.meta.num_tokens, q_size = shape_.heads * shape_.head_dim, kv_size = shape_.kv_heads * shape_.head_dim;
  const Tensor hidden = random({n, shape_.hidden}, 1.0), out = random({n, shape_.hidden}, 1.0), qkv = random({n, shape_.qkv_rows()}, 1.0);
  const Tensor q = qkv.slice(1, 0, q_size).split_last(shape_.heads, shape_.head_dim);
  const Tensor k = qkv.slice(1, q_size, kv_size).split_last(shape_.kv_heads, shape_.head_dim);
  const Tensor v = qkv.slice(1, q_size + kv_size, kv_size).split_last(shape_.kv_heads, shape_.head_dim);
  return time_graph(stream(), repeats, [&] {
    for (const Layer& layer : layers_) {
      ops::rope_write_kv(ctx_, q, k, v, cos_sin_, RopeLayout::kHalf, step.meta, layer.kv);
      ops::add_rms_norm(ctx_, hidden, out, layer.input_norm, 1e-5, out);
      ops::add_rms_norm(ctx_, hidden, out, layer.post_norm, 1e-5, out);
    }
  });
}

}  // namespace tutti::bench

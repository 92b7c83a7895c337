#include "ops/cuda/product_choice.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "tensor/device_memory.h"

namespace tutti::cuda {
namespace {

constexpr int kTimedRuns = 3;
constexpr double kHopeless = 1.1;  // times what is to be beaten
constexpr int64_t kFlushBytes = int64_t{128} << 20;
constexpr int64_t kTrialOutputBytes = int64_t{8} << 20;  // at the start of it
constexpr int kMaxCopies = 4;        // of a weight, in the rest of it
constexpr size_t kProducts = 6;      // in a graph, and as many neighbours
constexpr int kTimedGraphs = 5;

struct Event {
  Event() { check(cudaEventCreate(&event), "cudaEventCreate"); }
  ~Event() { (void)cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t event = nullptr;
};

// What `calls` queue on the stream, as a graph.
struct Graph {
  Graph(cudaStream_t stream, const std::function<void()>& calls) {
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    calls();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
  }
  ~Graph() { (void)cudaGraphExecDestroy(exec); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  cudaGraphExec_t exec = nullptr;
};

}  // namespace

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

double time_cold(cudaStream_t stream, const Tensor& flush, const std::function<bool()>& run, double to_beat) {
  const Event begin, end;
  double best = 1e30;
  if (!run()) return best;  // which also brings the kernel onto the device
  for (int i = 0; i < kTimedRuns; ++i) {
    zero_async(flush.data(), flush.bytes(), stream);
    check(cudaEventRecord(begin.event, stream), "cudaEventRecord");
    if (!run()) return 1e30;
    check(cudaEventRecord(end.event, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end.event), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin.event, end.event), "cudaEventElapsedTime");
    best = std::min(best, 1e3 * ms);
    if (best > kHopeless * to_beat) break;
  }
  return best;
}

ProductChoice::ProductChoice(Device device, bool times) : times_(times), flush_(Tensor::empty({kFlushBytes}, DType::kU8, device)) {}

// Microseconds of the product, and of its neighbour where there is one, in a graph of them.
double ProductChoice::time_in_turns(cudaStream_t stream, const LinearCall& call, const std::function<void(const void* w)>& run,
                                    const ProductNeighbour& neighbour) const {
  const auto bytes = static_cast<int64_t>(dtype_bytes(call.dtype, call.rows * call.k));
  int64_t used = kTrialOutputBytes;
  const auto copies = [&](int64_t size, int most) {
    std::vector<const void*> all;
    for (int i = 0; i < most && used + size <= kFlushBytes; ++i, used += (size + 255) / 256 * 256) {
      all.push_back(flush_.data_as<std::byte>() + used);
      copy_async(flush_.data_as<std::byte>() + used, call.w, static_cast<size_t>(size), stream);
    }
    return all;
  };
  const std::vector<const void*> beside = copies(std::min(bytes, neighbour.bytes), neighbour.run ? 2 : 0);
  std::vector<const void*> weights = copies(bytes, kMaxCopies);
  weights.push_back(call.w);
  const Graph graph(stream, [&] {
    for (size_t i = 0; i < kProducts; ++i) {
      run(weights[i % weights.size()]);
      if (!beside.empty()) neighbour.run(beside[i % beside.size()]);
    }
  });
  const Event begin, end;
  double best = 1e30;
  for (int i = 0; i < kTimedGraphs; ++i) {
    check(cudaEventRecord(begin.event, stream), "cudaEventRecord");
    check(cudaGraphLaunch(graph.exec, stream), "cudaGraphLaunch");
    check(cudaEventRecord(end.event, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end.event), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin.event, end.event), "cudaEventElapsedTime");
    best = std::min(best, 1e3 * ms / static_cast<double>(kProducts));
  }
  return best;
}

ProductKernel ProductChoice::choose(cudaStream_t stream, const LinearCall& call, std::span<const ProductKernel> candidates, const Run& run,
                                    const ProductNeighbour& neighbour) {
  CHECK(!candidates.empty());
  if (candidates.size() == 1) return candidates[0];
  const int64_t tokens = call.num_tokens <= kSmallTokens ? call.num_tokens : (call.num_tokens + 7) / 8 * 8;
  const Key key{call.dtype, call.x_type, call.out_type, call.rows, call.k, tokens, call.block_scaled, call.gated,
                call.norm_weight != nullptr, call.rope != nullptr, call.left.weight != nullptr};
  const auto known = chosen_.find(key);
  // What was kept on disk is taken only if it can compute this product.
  if (known != chosen_.end() && std::find(candidates.begin(), candidates.end(), known->second) != candidates.end()) return known->second;
  if (is_capturing(stream)) return candidates[0];
  for (ProductKernel kernel : candidates) run(kernel, call.w);  // what they choose themselves is chosen before a graph is captured
  ProductKernel best = candidates[0];
  double best_us = 1e30;
  for (ProductKernel kernel : candidates) {
    if (!times_) break;
    const double us = time_in_turns(stream, call, [&](const void* w) { run(kernel, w); }, neighbour);
    if (us < kClearlyFaster * best_us) best_us = us, best = kernel;
  }
  chosen_.insert_or_assign(key, best);
  return best;
}

}  // namespace tutti::cuda

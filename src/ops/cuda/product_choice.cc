#include "ops/cuda/product_choice.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/device_memory.h"

namespace tutti::cuda {
namespace {

constexpr int kTimedRuns = 4;
constexpr int64_t kFlushBytes = int64_t{128} << 20;

struct Event {
  Event() { check(cudaEventCreate(&event), "cudaEventCreate"); }
  ~Event() { (void)cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t event = nullptr;
};

}  // namespace

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

double time_cold(cudaStream_t stream, const Tensor& flush, const std::function<bool()>& run) {
  const Event begin, end;
  double best = 1e30;
  for (int i = 0; i < kTimedRuns; ++i) {
    zero_async(flush.data(), flush.bytes(), stream);
    check(cudaEventRecord(begin.event, stream), "cudaEventRecord");
    if (!run()) return 1e30;
    check(cudaEventRecord(end.event, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end.event), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin.event, end.event), "cudaEventElapsedTime");
    best = std::min(best, 1e3 * ms);
  }
  return best;
}

ProductChoice::ProductChoice(Device device) : flush_(Tensor::empty({kFlushBytes}, DType::kU8, device)) {}

ProductKernel ProductChoice::choose(cudaStream_t stream, const LinearCall& call, std::span<const ProductKernel> candidates,
                                    const std::function<void(ProductKernel)>& run) {
  CHECK(!candidates.empty());
  if (candidates.size() == 1) return candidates[0];
  const int64_t tokens = call.num_tokens <= kSmallTokens ? call.num_tokens : (call.num_tokens + 7) / 8 * 8;
  const Key key{call.dtype, call.x_type, call.out_type, call.rows, call.k, tokens, call.block_scaled, call.gated,
                call.norm_weight != nullptr, call.rope != nullptr};
  const auto known = chosen_.find(key);
  // What was kept on disk is taken only if it can compute this product.
  if (known != chosen_.end() && std::find(candidates.begin(), candidates.end(), known->second) != candidates.end()) return known->second;
  if (is_capturing(stream)) return candidates[0];
  ProductKernel best = candidates[0];
  double best_us = 1e30;
  for (ProductKernel kernel : candidates) {
    const double us = time_cold(stream, flush_, [&] {
      run(kernel);
      return true;
    });
    if (us < best_us) best_us = us, best = kernel;
  }
  chosen_.insert_or_assign(key, best);
  return best;
}

}  // namespace tutti::cuda

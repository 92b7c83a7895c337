// Which kernel a product takes: the fastest of those that can, timed on first use with cold caches. Worker thread only.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <tuple>

#include "ops/cuda/linear_call.h"

namespace tutti::cuda {

// Microseconds of the fastest of a few runs on the context's stream, each with an L2 that holds nothing of use. A run
// that returns false counts as endless. Not while a graph is being captured.
double time_cold(cudaStream_t stream, const Tensor& flush, const std::function<bool()>& run);
bool is_capturing(cudaStream_t stream);

// kStaged: norm, rounding, product and rotation one after the other.
enum class ProductKernel { kSmall, kStaged, kTile, kLibrary };

class ProductChoice {
 public:
  explicit ProductChoice(Device device);

  // One of `candidates`; the first when a graph is being captured and this product was never seen. Numbers of tokens that
  // are near each other share a choice. `run` computes the product with a kernel, as often as it is asked: a product that
  // adds to its output then wants another one.
  ProductKernel choose(cudaStream_t stream, const LinearCall& call, std::span<const ProductKernel> candidates,
                       const std::function<void(ProductKernel)>& run);

  const Tensor& flush() const { return flush_; }

  using Key = std::tuple<DType, DType, DType, int64_t, int64_t, int64_t, bool, bool, bool, bool>;
  using Choices = std::map<Key, ProductKernel>;
  Choices& choices() { return chosen_; }

 private:
  Tensor flush_;  // larger than the L2
  Choices chosen_;
};

}  // namespace tutti::cuda

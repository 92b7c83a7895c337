// Which kernel a product takes: the fastest of those that can, timed on first use. Worker thread only.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <tuple>

#include "ops/cuda/linear_call.h"

namespace tutti::cuda {

// Microseconds of the fastest of a few runs on the context's stream, each with an L2 that holds nothing of use; of fewer once
// one took far longer than `to_beat`. A run that returns false counts as endless. Not while a graph is being captured.
double time_cold(cudaStream_t stream, const Tensor& flush, const std::function<bool()>& run, double to_beat);
// Where two take nearly the same time the earlier one is taken, so that it is the same one at every start: a later one has
// to take less than this part of the earlier one's time.
constexpr double kClearlyFaster = 0.98;
bool is_capturing(cudaStream_t stream);

// kStaged: norm, rounding, product and rotation one after the other.
enum class ProductKernel { kSmall, kStaged, kTile, kLibrary };

// A product like those that stand before and behind the one that is timed, with a weight of `bytes` at `w`, into
// trial_output(). Without one (`run` is empty) the product is among others like itself.
struct ProductNeighbour {
  int64_t bytes = 0;
  std::function<void(const void* w)> run;
};

class ProductChoice {
 public:
  ProductChoice(Device device, bool times);  // times: CudaOptions::time_products

  // Computes the product with a kernel and the weight at `w`, as often as it is asked: a product that adds to its output
  // then takes trial_output().
  using Run = std::function<void(ProductKernel, const void* w)>;
  // One of `candidates`; the first when a graph is being captured and this product was never seen. Numbers of tokens that
  // are near each other share a choice. What is timed is a graph in which the product and its neighbour take turns, with
  // weights that the L2 does not hold: a kernel that begins before the one ahead of it has ended, and lets the next one
  // begin, is worth more there than alone.
  ProductKernel choose(cudaStream_t stream, const LinearCall& call, std::span<const ProductKernel> candidates, const Run& run,
                       const ProductNeighbour& neighbour = {});

  bool times() const { return times_; }
  const Tensor& flush() const { return flush_; }
  void* trial_output() const { return flush_.data(); }  // kTrialOutputBytes

  // The last: something is left for a norm.
  using Key = std::tuple<DType, DType, DType, int64_t, int64_t, int64_t, bool, bool, bool, bool, bool>;
  using Choices = std::map<Key, ProductKernel>;
  Choices& choices() { return chosen_; }

 private:
  double time_in_turns(cudaStream_t stream, const LinearCall& call, const std::function<void(const void* w)>& run,
                       const ProductNeighbour& neighbour) const;

  const bool times_;
  Tensor flush_;  // larger than the L2
  Choices chosen_;
};

}  // namespace tutti::cuda

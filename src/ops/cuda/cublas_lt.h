// cuBLASLt, opened when the context is made, and the algorithm of each product: the fastest of those its heuristic
// offers, timed on first use; a product with nearly as many tokens as one that was timed takes that one's, for timing
// takes far longer than a step. While a graph is being captured nothing can be timed, so there an unseen product takes
// the heuristic's first. Worker thread only.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "ops/cuda/linear_call.h"

namespace tutti::cuda {

class CublasLt {
 public:
  // Throws ConfigError naming the package when the library is not there.
  // `flush`: memory larger than the L2, overwritten while algorithms are timed.
  CublasLt(Device device, cudaStream_t stream, const Tensor& flush, bool times);  // times: CudaOptions::time_products
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  // out = x W^T, or out += x W^T, with the call's scales of rows and tokens; all else is the caller's. Sums in float32.
  void multiply(const LinearCall& call);

  size_t version() const;
  using Key = std::tuple<DType, DType, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool>;
  using Choices = std::map<Key, cublasLtMatmulAlgo_t>;  // of use to the same version of the library
  Choices& choices() { return chosen_; }

 private:
  struct Api;
  struct Product;

  static std::unique_ptr<Api> open();
  // Of those that the heuristic offers.
  cublasLtMatmulAlgo_t fastest(const LinearCall& call, const Product& product);
  // That of the same product with the next larger number of tokens, at most twice as many; nothing when there is none that
  // can.
  const cublasLtMatmulAlgo_t* of_more_tokens(const Key& key, const Product& product);
  cublasStatus_t run(const LinearCall& call, const Product& product, const cublasLtMatmulAlgo_t& algo);

  std::unique_ptr<Api> api_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  cudaStream_t stream_;
  const bool times_;
  Tensor flush_;
  Tensor workspace_;
  Choices chosen_;
};

}  // namespace tutti::cuda

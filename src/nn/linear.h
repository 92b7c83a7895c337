// Linear layers and how each is cut over the tensor-parallel group (arXiv:1909.08053). None of them communicates: a
// column-parallel layer gives a part of the output features, a row-parallel one a partial sum that Residual completes.
// Worker thread only; layers never move once built.
#pragma once

#include <string>
#include <vector>

#include "nn/build_context.h"
#include "ops/ops.h"

namespace tutti {

// y = x W^T + b with whatever part of W this rank holds. The four layers below differ only in what they declare.
class Linear {
 public:
  Linear(const Linear&) = delete;
  Linear& operator=(const Linear&) = delete;

  // x [num_tokens, in_features], out [num_tokens, out_features], both this rank's part
  void forward(const Context& ctx, const ops::Input& x, const Tensor& out) const;
  // stream += x W^T + b, or with `ranks` what those add up to. Whether it left what `ahead` asks for (ops::linear_add).
  bool add_to(const Context& ctx, const Tensor& x, const Tensor& stream, const ops::NormAhead& ahead,
              const cuda_ipc::IpcGroup* ranks = nullptr) const;
  const PackedWeight& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 protected:
  Linear() = default;
  PackedWeight weight_;
  Tensor bias_;
};

// Several matrices over the same input, each cut by rows, in one product: {"mlp.gate", "mlp.up"}.
class ColumnParallelLinear : public Linear {
 public:
  ColumnParallelLinear(const BuildContext& build, const std::vector<std::string>& names, int64_t in_features,
                       int64_t out_features, Range rows, bool bias = false);
};

// q, k and v of this rank's heads, stacked in this order. `prefix` is "layers.3.attention".
class QKVParallelLinear : public Linear {
 public:
  QKVParallelLinear(const BuildContext& build, const std::string& prefix);
};

// Cut by columns. The sum over the group's ranks is the result; the bias is in the first rank's part.
class RowParallelLinear : public Linear {
 public:
  RowParallelLinear(const BuildContext& build, const std::string& name, int64_t in_features, int64_t out_features,
                    Range columns, bool bias = false);
};

// The same on every rank.
class ReplicatedLinear : public Linear {
 public:
  ReplicatedLinear(const BuildContext& build, const std::string& name, int64_t in_features, int64_t out_features,
                   bool bias = false);
};

}  // namespace tutti

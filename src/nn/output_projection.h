// The second matrix of a block, whose inputs (heads, feed-forward columns) lie on the ranks of the tensor-parallel
// group, and whose result every rank needs. Worker thread only; never moves once built.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/build_context.h"
#include "nn/linear.h"

namespace tutti {

// Whether a product was added to the stream, and whether it left what the next norm may take (ops::NormAhead).
enum class Added { kNot, kPlain, kWithNormAhead };

class OutputProjection {
 public:
  virtual ~OutputProjection() = default;

  // x [num_tokens, this rank's part of in_features], out [num_tokens, out_features]
  virtual void forward(const Context& ctx, const Tensor& x, const Tensor& out) const = 0;
  // True: out is this rank's part of a sum that Residual completes. False: out is the result.
  virtual bool is_partial() const = 0;
  // stream += x W^T + b in one kernel, the sum over the ranks included, where there is one and nothing else is done to the sum;
  // kNot: nothing was done, it is forward()'s.  stream [num_tokens, out_features]
  virtual Added add_in_place(const Context& ctx, const Tensor& x, const Tensor& stream, const ops::NormAhead& ahead) const = 0;
};

// Cut by input features: no exchange before the product, an all-reduce after it or at its end. The order of the additions,
// hence the last bits, depends on the size of the group. For GPUs, whose links like one large sum.
class PartialSumProjection final : public OutputProjection {
 public:
  // `inputs`: the part of in_features that each rank of the group has.
  PartialSumProjection(const BuildContext& build, const std::string& name, int64_t in_features, int64_t out_features,
                       const std::vector<Range>& inputs, bool bias);
  void forward(const Context& ctx, const Tensor& x, const Tensor& out) const override { linear_.forward(ctx, x, out); }
  bool is_partial() const override { return true; }
  Added add_in_place(const Context& ctx, const Tensor& x, const Tensor& stream, const ops::NormAhead& ahead) const override;

 private:
  Communicator& tp_;
  bool even_;  // all ranks have as much
  RowParallelLinear linear_;
};

// Cut by output features: the inputs are gathered first, as int8 codes where the weight is quantised, and the outputs
// afterwards, as halves in that case. Every output is one chain of additions over all inputs, so that every group size
// gives the same bits; and fewer bytes cross than in an all-reduce of float32 sums. A group of one exchanges nothing and
// rounds its outputs the same way.
class GatheredProjection final : public OutputProjection {
 public:
  // `inputs`: the part of in_features that each rank of the group brings.
  GatheredProjection(const BuildContext& build, const std::string& name, int64_t in_features, int64_t out_features,
                     std::vector<Range> inputs, bool bias);
  void forward(const Context& ctx, const Tensor& x, const Tensor& out) const override;
  bool is_partial() const override { return false; }
  Added add_in_place(const Context&, const Tensor&, const Tensor&, const ops::NormAhead&) const override { return Added::kNot; }

 private:
  void gather_inputs(const Context& ctx, const Tensor& x, const Tensor& whole) const;
  void round_outputs(const Context& ctx, const Tensor& out) const;
  DType output_dtype(const Context& ctx) const;
  void gather_outputs(const Context& ctx, const Tensor& part, const Tensor& out) const;

  Communicator& tp_;
  std::vector<Range> inputs_;
  std::vector<Range> outputs_;
  int64_t in_features_;
  ColumnParallelLinear linear_;
};

// As the partition says.
std::unique_ptr<OutputProjection> make_output_projection(const BuildContext& build, const std::string& name,
                                                         int64_t in_features, int64_t out_features,
                                                         const std::vector<Range>& inputs, bool bias);

}  // namespace tutti

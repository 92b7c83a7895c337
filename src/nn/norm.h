// Root-mean-square normalisation (arXiv:1910.07467). Its weight is the same on every rank. Worker thread only.
#pragma once

#include <string>

#include "nn/build_context.h"
#include "ops/ops.h"

namespace tutti {

class RMSNorm {
 public:
  RMSNorm(const BuildContext& build, const std::string& name, int64_t size) : eps_(build.config.rms_norm_eps) {
    build.parameters.add_vector(weight_, {{name + ".weight", size, 0, ShardRule::whole()}});
  }
  RMSNorm(const RMSNorm&) = delete;
  RMSNorm& operator=(const RMSNorm&) = delete;

  // x and out [..., size], may be the same
  void forward(const Context& ctx, const Tensor& x, const Tensor& out) const { ops::rms_norm(ctx, x, weight_, eps_, out); }
  const Tensor& weight() const { return weight_; }
  double eps() const { return eps_; }

 private:
  Tensor weight_;  // F32 [size]
  double eps_;
};

}  // namespace tutti

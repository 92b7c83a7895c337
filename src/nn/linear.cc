#include "nn/linear.h"

namespace tutti {

void Linear::forward(const Context& ctx, const ops::Input& x, const Tensor& out) const {
  ops::linear(ctx, x, weight_, bias_, out);
}

bool Linear::add_to(const Context& ctx, const Tensor& x, const Tensor& stream, const ops::NormAhead& ahead,
                    const cuda_ipc::IpcGroup* ranks) const {
  return ops::linear_add(ctx, x, weight_, bias_, stream, ahead, ranks);
}

ColumnParallelLinear::ColumnParallelLinear(const BuildContext& build, const std::vector<std::string>& names,
                                           int64_t in_features, int64_t out_features, Range rows, bool bias) {
  std::vector<Parameter> weights;
  std::vector<Parameter> biases;
  for (const std::string& name : names) {
    weights.push_back({name + ".weight", out_features, in_features, ShardRule::rows(rows)});
    biases.push_back({name + ".bias", out_features, 0, ShardRule::rows(rows)});
  }
  build.parameters.add_matrix(weight_, std::move(weights));
  if (bias) build.parameters.add_vector(bias_, std::move(biases));
}

QKVParallelLinear::QKVParallelLinear(const BuildContext& build, const std::string& prefix) {
  const ModelConfig& config = build.config;
  const int64_t dim = config.head_dim;
  const ShardRule q = ShardRule::rows(build.cut.heads.times(dim));
  const ShardRule kv = ShardRule::rows(build.cut.kv_heads.times(dim));
  const auto declare = [&](const std::string& suffix, int64_t columns) -> std::vector<Parameter> {
    return {{prefix + ".q" + suffix, config.num_heads * dim, columns, q},
            {prefix + ".k" + suffix, config.num_kv_heads * dim, columns, kv},
            {prefix + ".v" + suffix, config.num_kv_heads * dim, columns, kv}};
  };
  build.parameters.add_matrix(weight_, declare(".weight", config.hidden_size));
  if (config.qkv_bias) build.parameters.add_vector(bias_, declare(".bias", 0));
}

RowParallelLinear::RowParallelLinear(const BuildContext& build, const std::string& name, int64_t in_features,
                                     int64_t out_features, Range columns, bool bias) {
  build.parameters.add_matrix(weight_, {{name + ".weight", out_features, in_features, ShardRule::columns(columns)}});
  if (bias && build.cut.rank == 0) {
    build.parameters.add_vector(bias_, {{name + ".bias", out_features, 0, ShardRule::whole()}});
  }
}

ReplicatedLinear::ReplicatedLinear(const BuildContext& build, const std::string& name, int64_t in_features,
                                   int64_t out_features, bool bias) {
  build.parameters.add_matrix(weight_, {{name + ".weight", out_features, in_features, ShardRule::whole()}});
  if (bias) build.parameters.add_vector(bias_, {{name + ".bias", out_features, 0, ShardRule::whole()}});
}

}  // namespace tutti

#include "nn/mlp.h"

namespace tutti {
namespace {

std::string prefix(int layer) { return "layers." + std::to_string(layer) + ".mlp"; }

}  // namespace

GatedMLP::GatedMLP(const BuildContext& build, int layer)
    : gate_up_(build, {prefix(layer) + ".gate", prefix(layer) + ".up"}, build.config.hidden_size,
               build.config.intermediate_size, build.cut.ffn),
      down_(make_output_projection(build, prefix(layer) + ".down", build.config.intermediate_size, build.config.hidden_size,
                                   build.cut.all_ffn, /*bias=*/false)),
      columns_(build.cut.ffn.count) {}

BlockOutput GatedMLP::forward(const ForwardStep& step, const ops::Input& x) const {
  const Tensor inner = step.ctx.arena->allocate({x.x.size(0), columns_}, x.x.dtype());
  ops::gate_up_silu(step.ctx, x, gate_up_.weight(), inner);
  return {*down_, inner};
}

}  // namespace tutti

#include "ops/kernel_table.h"

#include <string>

#include "base/error.h"
#include "ops/cpu/isa.h"

namespace tutti {

std::string_view op_name(Op op) {
  switch (op) {
    case Op::kLinear: return "linear";
    case Op::kEmbedding: return "embedding";
    case Op::kGateUpSilu: return "gate_up_silu";
    case Op::kAttention: return "paged_attention";
  }
  return "?";
}

const KernelTable& kernel_table(const Context& ctx) {
  if (ctx.kernels != nullptr) return *ctx.kernels;
  if (ctx.device.is_cpu()) return cpu::best_kernel_table();
  const KernelTable* cuda = cuda_kernel_table();
  if (cuda == nullptr) {
    throw ConfigError("no kernels for device " + to_string(ctx.device) +
                      ": this program was built without CUDA (configure with -DTUTTI_CUDA=ON, or use --device cpu)");
  }
  return *cuda;
}

void require_kernel(const KernelTable& table, Op op, DType dtype) {
  if (table.has(table, op, dtype)) return;
  throw ConfigError("no kernel " + std::string(op_name(op)) + " for type " + std::string(dtype_name(dtype)) + " in " +
                    std::string(table.name) + ": convert the model to a type that has one (F32, F16, BF16, Q8_0, Q4_0, ...)");
}

}  // namespace tutti

#include "ops/kernel_table.h"

#include "ops/cuda/kernels.h"

namespace tutti {
namespace {

// Weights of any wider type are stored in the activations' type. The cache is read as it lies.
bool has(const KernelTable&, Op op, DType dtype) {
  if (op == Op::kAttention) return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF8E4M3;
  if (dtype == DType::kF8E4M3) return op != Op::kEmbedding;
  return dtype != DType::kI8 && dtype != DType::kU8 && dtype != DType::kI32 && dtype != DType::kI64;
}

constexpr KernelTable kCudaTable{
    .name = "cuda",
    .device = DeviceType::kCuda,
    .has = has,
    .pack_weight = cuda::pack_weight,
    .embedding = cuda::embedding,
    .linear = cuda::linear,
    .gate_up_silu = cuda::gate_up_silu,
    .rms_norm = cuda::rms_norm,
    .add_rms_norm = cuda::add_rms_norm,
    .add = cuda::add,
    .rope = cuda::rope,
    .write_kv = cuda::write_kv,
    .rope_write_kv = cuda::rope_write_kv,
    .paged_attention = cuda::paged_attention,
    .gather_rows = cuda::gather_rows,
    .copy_with_table = cuda::copy_with_table,
    .argmax = cuda::argmax,
    .best_of_parts = cuda::best_of_parts,
    .draw_tokens = cuda::draw_tokens,
    .linear_of_norm = cuda::linear,
    .gate_up_silu_of_norm = cuda::gate_up_silu,
    .linear_add = cuda::linear_add,
    .sums_over_ranks = cuda::sums_over_ranks,
    .qkv_rope_write_kv = cuda::qkv_rope_write_kv,
    .pack_weight_fp8 = cuda::pack_weight_fp8,
};

}  // namespace

const KernelTable* cuda_kernel_table() { return &kCudaTable; }

}  // namespace tutti

// Which kernels a device (and, on the CPU, an instruction set level) has: one table each. ops.cc checks shapes and calls
// through it. Tables are constant; any thread may read them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ops/ops.h"

namespace tutti {

namespace cpu {
struct LevelKernels;
}

enum class Op : uint8_t { kLinear, kEmbedding, kGateUpSilu, kAttention };
std::string_view op_name(Op op);

struct KernelTable {
  std::string_view name;  // "cpu/avx512", "cuda"
  DeviceType device = DeviceType::kCpu;
  const cpu::LevelKernels* level = nullptr;  // CPU only

  // Is there a kernel for weights (kAttention: a cache) of this type?
  bool (*has)(const KernelTable& table, Op op, DType dtype);

  // As in ops.h; shapes are checked.
  PackedWeight (*pack_weight)(const Context&, std::span<const Tensor> pieces);
  void (*embedding)(const Context&, const ops::TokenIds& tokens, const PackedWeight& table, int64_t vocab_begin, const Tensor& out);
  // `x` comes without a norm.
  void (*linear)(const Context&, const ops::Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& out);
  void (*gate_up_silu)(const Context&, const ops::Input& x, const PackedWeight& w, const Tensor& out);
  void (*rms_norm)(const Context&, const Tensor& x, const Tensor& weight, double eps, const Tensor& out);
  void (*add_rms_norm)(const Context&, const Tensor& residual, const Tensor& delta, const Tensor& weight, double eps,
                       const Tensor& out);
  void (*add)(const Context&, const Tensor& x, const Tensor& y);
  void (*rope)(const Context&, const Tensor& x, const Tensor& positions, const Tensor& cos_sin, RopeLayout layout);
  void (*write_kv)(const Context&, const Tensor& k, const Tensor& v, const AttentionMetadata& meta, const KVLayer& cache);
  void (*rope_write_kv)(const Context&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos_sin, RopeLayout layout,
                        const AttentionMetadata& meta, const KVLayer& cache);
  void (*paged_attention)(const Context&, const Tensor& q, const KVLayer& cache, const AttentionMetadata& meta,
                          const ops::AttentionParams& params, const Tensor& out);
  void (*gather_rows)(const Context&, const Tensor& x, const Tensor& rows, const Tensor& out);
  void (*copy_with_table)(const Context&, const Tensor& from, const Tensor& to, const Tensor& table, const Tensor& to_table);
  void (*argmax)(const Context&, const Tensor& x, const Tensor& values, const Tensor& indices, int64_t first);
  void (*best_of_parts)(const Context&, const Tensor& parts, const Tensor& values, const Tensor& indices);
  // GPU only: hosts draw from logits themselves.
  void (*draw_tokens)(const Context&, const Tensor& x, const Tensor& draws, const Tensor& values, const Tensor& indices) = nullptr;
  // GPU only: products with what stands before them (a norm) or after them (an addition; rotation and cache writes, false:
  // there is no kernel for this case). Elsewhere ops.cc does one after the other.
  void (*linear_of_norm)(const Context&, const ops::Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& out) = nullptr;
  void (*gate_up_silu_of_norm)(const Context&, const ops::Input& x, const PackedWeight& w, const Tensor& out) = nullptr;
  bool (*linear_add)(const Context&, const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& residual,
                     const ops::NormAhead& ahead, const cuda_ipc::IpcGroup* ranks) = nullptr;
  bool (*sums_over_ranks)(const Context&, const Tensor& x, const PackedWeight& w, const Tensor& residual) = nullptr;
  bool (*qkv_rope_write_kv)(const Context&, const ops::Input& x, const PackedWeight& w, const Tensor& bias, const Tensor& cos_sin,
                            RopeLayout layout, const AttentionMetadata& meta, const KVLayer& cache, const Tensor& qkv) = nullptr;
  PackedWeight (*pack_weight_fp8)(const Context&, std::span<const Tensor> pieces, std::span<const Tensor> scales) = nullptr;
  // CPU only: ranks on GPUs exchange partial sums, not activations.
  void (*encode_activations)(const Context&, const Tensor& x, const Tensor& codes) = nullptr;
  void (*decode_activations)(const Context&, const Tensor& codes, const Tensor& x) = nullptr;
};

// The context's own table, else the best one for its device. Throws ConfigError when this program was built without
// kernels for the device, or when TUTTI_CPU_ISA names a level that this processor does not have.
const KernelTable& kernel_table(const Context& ctx);

// nullptr when this program was built without CUDA.
const KernelTable* cuda_kernel_table();

// Throws ConfigError naming the table, the op and the type when there is no such kernel. Called before weights are read.
void require_kernel(const KernelTable& table, Op op, DType dtype);

}  // namespace tutti

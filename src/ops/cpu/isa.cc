#include "ops/cpu/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/error.h"
#include "ops/cpu/drivers.h"

namespace tutti::cpu {
namespace {

bool has_kernel(const KernelTable& table, Op op, DType dtype) {
  if (op == Op::kAttention) return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kQ8_0;
  return panel_of(*table.level, dtype) != nullptr;
}

KernelTable make_table(const LevelKernels& level, std::string_view name) {
  return {.name = name,
          .device = DeviceType::kCpu,
          .level = &level,
          .has = has_kernel,
          .pack_weight = pack_weight,
          .embedding = embedding,
          .linear = linear,
          .gate_up_silu = gate_up_silu,
          .rms_norm = rms_norm,
          .add_rms_norm = add_rms_norm,
          .add = add,
          .rope = rope,
          .write_kv = write_kv,
          .rope_write_kv = rope_write_kv,
          .paged_attention = paged_attention,
          .gather_rows = gather_rows,
          .copy_with_table = copy_with_table,
          .argmax = argmax,
          .best_of_parts = best_of_parts,
          .encode_activations = encode_activations,
          .decode_activations = decode_activations};
}

#if defined(__x86_64__)
// The system hands out tile registers only to processes that ask for them.
bool may_use_amx() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return cpu_supports_amx() && ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

std::vector<KernelTable> make_tables() {
  std::vector<KernelTable> tables;
  tables.push_back(make_table(portable_kernels(), "cpu/portable"));
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_supports_f16c();
  if (avx2) tables.push_back(make_table(avx2_kernels(), "cpu/avx2"));
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) tables.push_back(make_table(avx512_kernels(), "cpu/avx512"));
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  if (vnni) tables.push_back(make_table(vnni_kernels(), "cpu/vnni"));
  const bool bf16 = vnni && __builtin_cpu_supports("avx512bf16");
  if (bf16) tables.push_back(make_table(bf16_kernels(), "cpu/bf16"));
  if (vnni && may_use_amx()) tables.push_back(make_table(amx_kernels(), "cpu/amx"));
#endif
  return tables;
}

const KernelTable& table_of_level(std::string_view level, const std::string& who) {
  std::string names;
  for (const KernelTable& table : available_tables()) {
    if (table.level->name == level) return table;
    names += (names.empty() ? "" : ", ") + std::string(table.level->name);
  }
  throw ConfigError(who + std::string(level) + ": this processor and build have " + names);
}

std::string_view asked_level() {
  const char* wanted = std::getenv("TUTTI_CPU_ISA");
  return wanted == nullptr ? "" : wanted;
}

// By what the processor is and not by a measurement: two levels give other bits, so every start has to decide alike. Intel's
// VDPBF16PS does no more than its fused multiply-adds (79 against 166 GFLOP/s where they were measured), AMD's twice as much.
const KernelTable& choose_table() {
  if (const std::string_view asked = asked_level(); !asked.empty()) return table_of_level(asked, "TUTTI_CPU_ISA=");
  const auto tables = available_tables();
  size_t best = tables.size() - 1;
#if defined(__x86_64__)
  if (tables[best].level->isa == Isa::kBf16 && __builtin_cpu_is("intel")) --best;
#endif
  return tables[best];
}

}  // namespace

std::span<const KernelTable> available_tables() {
  static const std::vector<KernelTable> tables = make_tables();
  return tables;
}

const KernelTable& best_kernel_table() {
  static const KernelTable& table = choose_table();
  return table;
}

const KernelTable& kernel_table_of_level(std::string_view level) {
  if (const std::string_view asked = asked_level(); !asked.empty() && asked != level) {
    throw ConfigError("TUTTI_CPU_ISA=" + std::string(asked) + " here, but the head's ranks compute with " + std::string(level) +
                      ", and two levels give other bits: set it for `tutti serve`, and leave it out here");
  }
  return table_of_level(level, "the head's ranks compute with CPU kernels of the level ");
}

}  // namespace tutti::cpu

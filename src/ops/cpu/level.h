// The kernels of one instruction set level: plain functions on raw pointers for one thread, filled in by
// level_<name>.cc, each of which alone is compiled for its instruction set. The drivers (linear.cc, attention.cc, ...)
// cut the work, own scratch memory and threads, and call these.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tutti::cpu {

enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kVnni, kBf16, kAmx };

// One split of the keys of one sequence and one KV head, for a block of query rows. Row r is query head r % group of
// token r / group, counted from the tokens' first row.
struct AttentionSplit {
  const float* q = nullptr;     // tiles of rows as for plain weights, [head_dim][tile rows], scaled
  int64_t rows = 0;
  int64_t head_dim = 0;         // even
  int64_t group = 1;            // query heads of a KV head
  int64_t first_row = 0;        // of this block, counted from the sequence's first query row of the step
  int64_t first_position = 0;   // of the sequence's first token of the step
  int64_t begin = 0, end = 0;   // key positions, begin is a multiple of kKeyStep
  int64_t seq_len = 0;          // keys of the sequence
  int64_t sliding_window = 0;
  float soft_cap = 0;

  const uint8_t* keys = nullptr;    // of this KV head in block 0 (attention_kernels.h has the order inside a block)
  const uint8_t* values = nullptr;  // the same
  int64_t block_stride = 0;       // bytes from block to block
  int64_t block_size = 0;
  const int32_t* block_table = nullptr;

  float* max = nullptr;  // [rows]: out, -infinity where the row sees no key of this split
  float* sum = nullptr;  // [rows]: out, of exp(score - max)
  float* out = nullptr;  // [rows, round_up(head_dim, 32)]: out, sum of exp(score - max) * value
  float* scratch = nullptr;  // attention_scratch_floats(head_dim) floats, 64-byte aligned
};

inline constexpr int64_t kKeyStep = 32;        // keys between two rescalings of a row's sum
inline constexpr int64_t kKeySplit = 256;      // keys of a split: borders depend on positions alone
inline constexpr int64_t kMaxHeadDim = 1024;
inline constexpr int64_t kAttentionRows = 48;  // query rows of a block, a multiple of every level's tile height

inline constexpr int64_t attention_scratch_floats(int64_t head_dim) {
  const int64_t padded = (head_dim + 31) / 32 * 32;
  return 2 * padded * kKeyStep + 2 * kAttentionRows * kKeyStep;  // keys, values, scores, sums by lane
}

// No member functions with bodies and no library types here: what a level's file instantiates is compiled for its
// instruction set, and must not be what the linker keeps for everybody.
struct LevelKernels {
  Isa isa;
  const char* name;
  int float_tile_rows;  // activation rows of a tile (layout.h)
  int pair_tile_rows;
  int quant_tile_rows;

  // c[row][0..32) = the products of `rows` activation rows with a panel of weights, by weight type; nullptr where
  // there is no kernel. `tiles` are float or quantised tiles, as the type wants.
  using PanelKernel = void (*)(const uint8_t* panel, int64_t k, const uint8_t* tiles, int64_t rows, float* c, int64_t ldc);
  PanelKernel panel[static_cast<size_t>(DType::kCount)];

  // The same of kPanelsInTurn panels, whose bytes are read in turn. For few rows; nullptr where a level does not gain.
  using TurnsKernel = void (*)(const uint8_t* const* panels, int64_t k, const uint8_t* tiles, int64_t rows, float* const* c,
                               int64_t ldc);
  TurnsKernel panels_in_turn[static_cast<size_t>(DType::kCount)];

  // c[row][0..32) += the products of some blocks of 32 k of a panel of Q8_0 with quantised tiles of these blocks only,
  // `rows` <= quant_tile_rows high.
  void (*q8_blocks)(const uint8_t* panel, const int32_t* blocks, int64_t count, const uint8_t* tiles, int rows, float* c,
                    int64_t ldc);

  // One tile of `rows` <= tile rows of x, whose rows are `stride` floats apart.
  void (*float_tile)(const float* x, int64_t stride, int rows, int64_t k, uint8_t* tile);
  void (*quant_tile)(const float* x, int64_t stride, int rows, int64_t k, uint8_t* tile);
  // Where BF16 weights meet activations rounded to bfloat16: their tiles; else nullptr.
  void (*pair_tile)(const float* x, int64_t stride, int rows, int64_t k, uint8_t* tile);

  // Activations as they cross between ranks (activation_codes.cc); k is a multiple of 32.
  void (*encode_codes)(const float* x, int64_t k, uint8_t* out);
  void (*decode_codes)(const uint8_t* in, int64_t k, float* x);

  void (*add)(float* x, const float* y, int64_t n);                                         // x += y
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);              // silu(gate) * up
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);  // out may be x
  // Rotates pairs (x[i], x[half + i]), or (x[2i], x[2i + 1]) for the interleaved one.
  void (*rope_half)(float* x, const float* cos, const float* sin, int64_t half);
  void (*rope_interleaved)(float* x, const float* cos, const float* sin, int64_t half);
  void (*to_bf16)(const float* x, int64_t n, uint16_t* out);

  // By the cache's type: F32, BF16, Q8_0 (int8 codes, a scale for 32 elements of a token).
  void (*attend_f32)(const AttentionSplit&);
  void (*attend_bf16)(const AttentionSplit&);
  void (*attend_q8)(const AttentionSplit&);
  // Adds a split's (max, sum, out) of one row to the running ones.
  void (*merge_split)(int64_t n, float split_max, float split_sum, const float* split_out, float* max, float* sum, float* out);
};

const LevelKernels& portable_kernels();
#if defined(__x86_64__)
const LevelKernels& avx2_kernels();
const LevelKernels& avx512_kernels();
const LevelKernels& vnni_kernels();
const LevelKernels& bf16_kernels();
const LevelKernels& amx_kernels();
#endif

}  // namespace tutti::cpu

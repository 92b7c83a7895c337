// Fills a level's table from the kernel templates. Included by level_<name>.cc only, after its vector type.
#pragma once

#include "ops/cpu/attention_kernels.h"
#include "ops/cpu/formats/all.h"
#include "ops/cpu/level.h"
#include "ops/cpu/quant_kernels.h"

namespace tutti::cpu {

template <class V>
LevelKernels make_level(Isa isa, const char* name) {
  LevelKernels level{};
  level.isa = isa;
  level.name = name;
  level.float_tile_rows = V::kFloatTileRows;
  level.quant_tile_rows = V::kQuantTileRows;
  PlainFormats::for_each([&]<class W>() { level.panel[static_cast<size_t>(W::kType)] = plain_panel<V, W>; });
  BlockFormats::for_each([&]<class Format>() { level.panel[static_cast<size_t>(Format::kType)] = quant_panel<V, Format>; });
  if constexpr (V::kPlainTurns) {
    PlainFormats::for_each([&]<class W>() { level.panels_in_turn[static_cast<size_t>(W::kType)] = plain_panels_in_turn<V, W>; });
  }
  if constexpr (V::kQuantTurns) {
    BlockFormats::for_each([&]<class Format>() {
      level.panels_in_turn[static_cast<size_t>(Format::kType)] = quant_panels_in_turn<V, Format>;
    });
  }
  level.q8_blocks = quant_blocks<V, Q8_0, V::kQuantTileRows>;
  level.float_tile = interleave_tile<V>;
  level.quant_tile = quantize_tile<V>;
  level.encode_codes = encode_codes<V>;
  level.decode_codes = decode_codes<V>;
  level.add = add_rows<V>;
  level.silu_mul = silu_mul<V>;
  level.rms_norm = rms_norm_row<V>;
  level.rope_half = rope_half<V>;
  level.rope_interleaved = rope_interleaved<V>;
  level.to_bf16 = to_bf16<V>;
  level.attend_f32 = attend_split<V, CacheF32>;
  level.attend_bf16 = attend_split<V, CacheBF16>;
  level.attend_q8 = attend_split<V, CacheQ8>;
  level.merge_split = merge_split<V>;
  return level;
}

}  // namespace tutti::cpu

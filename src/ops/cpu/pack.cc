// Packing of weights into panels (layout.h), and the embedding, which takes single rows out of them again.
#include <cstring>
#include <string>

#include "base/error.h"
#include "ops/cpu/drivers.h"
#include "ops/cpu/formats/all.h"
#include "ops/cpu/layout.h"

namespace tutti::cpu {
namespace {

// What a weight type needs beyond the matrix kernels.
struct Packing {
  int64_t k_unit = 1;                                // in_features is a multiple
  int64_t (*panel_bytes)(int64_t k) = nullptr;       // nullptr: no such type
  // `rows` rows of the source, `stride` bytes apart, into a zeroed panel.
  void (*pack_rows)(const uint8_t* source, size_t stride, int rows, int64_t k, uint8_t* panel) = nullptr;
  void (*unpack_row)(const uint8_t* panel, int64_t k, int row, float* out) = nullptr;
};

template <class W>
Packing plain_packing() {
  constexpr int64_t kTile = 64;  // a tile of the source and of the panel stay in the first-level cache
  return {.k_unit = 1,
          .panel_bytes = [](int64_t k) { return round_up(k, 2) * kPanelRows * W::kElementBytes; },
          .pack_rows =
              [](const uint8_t* source, size_t stride, int rows, int64_t k, uint8_t* panel) {
                for (int64_t k0 = 0; k0 < k; k0 += kTile) {
                  const int64_t end = std::min(k, k0 + kTile);
                  for (int row = 0; row < rows; ++row) {
                    const uint8_t* p = source + static_cast<size_t>(row) * stride;
                    int64_t i = k0;
                    for (; i + W::kPackStep <= end; i += W::kPackStep) {
                      constexpr size_t kBytes = W::kPackStep * W::kElementBytes;
                      std::memcpy(panel + W::index(row, i) * W::kElementBytes, p + i * W::kElementBytes, kBytes);
                    }
                    for (; i < end; ++i) {
                      std::memcpy(panel + W::index(row, i) * W::kElementBytes, p + i * W::kElementBytes, W::kElementBytes);
                    }
                  }
                }
              },
          .unpack_row =
              [](const uint8_t* panel, int64_t k, int row, float* out) {
                for (int64_t i = 0; i < k; ++i) out[i] = W::value(panel + W::index(row, i) * W::kElementBytes);
              }};
}

template <class Format>
void pack_block_rows(const uint8_t* source, size_t stride, int rows, int64_t k, uint8_t* panel) {
  DecodedBlock block;
  const int block_bytes = dtype_info(Format::kType).block_bytes;
  for (int64_t k0 = 0; k0 < k; k0 += Format::kUnit, source += block_bytes, panel += Format::kUnitBytes) {
    for (int row = 0; row < rows; ++row) {
      Format::decode(source + static_cast<size_t>(row) * stride, block);
      Format::Scales::put(panel, row, block);
      uint8_t* plane = panel + Format::Scales::kBytes;
      const uint8_t* codes = block.codes;
      for (int b = 0; b < Format::kBlocks; ++b, plane += Format::Codes::kBytes) {
        for (int quad = 0; quad < kQuads; ++quad, codes += 4) {
          uint32_t four;
          std::memcpy(&four, codes, 4);
          Format::Codes::put(plane, row, quad, four);
        }
      }
    }
  }
}

template <class Format>
void unpack_block_row(const uint8_t* panel, int64_t k, int row, float* out) {
  for (int64_t k0 = 0; k0 < k; k0 += Format::kUnit, panel += Format::kUnitBytes) {
    for (int i = 0; i < Format::kUnit; ++i) {
      const uint8_t* plane = panel + Format::Scales::kBytes + i / kBlock * Format::Codes::kBytes;
      const int group = i / Format::kGroup;
      const float value = static_cast<float>(Format::code_value(Format::Codes::get(plane, row, i % kBlock)));
      out[k0 + i] = Format::Scales::scale(panel, row, group) * value;
      if constexpr (Format::kHasMin) out[k0 + i] += Format::Scales::min(panel, row, group);
    }
  }
}

template <class Format>
Packing block_packing() {
  return {.k_unit = Format::kUnit,
          .panel_bytes = [](int64_t k) { return k / Format::kUnit * Format::kUnitBytes; },
          .pack_rows = pack_block_rows<Format>,
          .unpack_row = unpack_block_row<Format>};
}

const Packing& packing_of(DType dtype) {
  using Table = std::array<Packing, static_cast<size_t>(DType::kCount)>;
  static const Table table = [] {
    Table t;
    PlainFormats::for_each([&]<class W>() { t[static_cast<size_t>(W::kType)] = plain_packing<W>(); });
    BlockFormats::for_each([&]<class Format>() { t[static_cast<size_t>(Format::kType)] = block_packing<Format>(); });
    return t;
  }();
  return table[static_cast<size_t>(dtype)];
}

void pack_panel(const Packing& packing, const Tensor& piece, int64_t panel, uint8_t* out) {
  const int64_t k = piece.size(1);
  std::memset(out, 0, static_cast<size_t>(packing.panel_bytes(k)));
  const int64_t rows = std::min<int64_t>(kPanelRows, piece.size(0) - panel * kPanelRows);
  packing.pack_rows(piece.row<uint8_t>(panel * kPanelRows), piece.stride_bytes(0), static_cast<int>(rows), k, out);
}

}  // namespace

PackedWeight pack_weight(const Context& ctx, std::span<const Tensor> pieces) {
  PackedWeight w;
  w.in_features = pieces[0].size(1);
  int64_t panels = 0;
  for (const Tensor& piece : pieces) {
    const Packing& packing = packing_of(piece.dtype());
    if (w.in_features % packing.k_unit != 0) {
      throw ConfigError("a weight of type " + std::string(dtype_name(piece.dtype())) + " has " +
                        std::to_string(w.in_features) + " input features on this rank, not a multiple of its block of " +
                        std::to_string(packing.k_unit) + " elements: choose another tensor-parallel size or weight type");
    }
    const int64_t count = num_panels(piece.size(0));
    const Tensor storage = Tensor::empty({count * packing.panel_bytes(w.in_features)}, DType::kU8);
    w.segments.push_back({.dtype = piece.dtype(), .rows = piece.size(0), .layout = 0, .storage = storage});
    w.out_features += piece.size(0);
    panels += count;
  }
  // The same cut as in linear(): a thread packs, and so first touches, the panels that it will read.
  split_evenly(ctx, threads_for(ctx, w.out_features * w.in_features), panels, [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // panel of the segment
    for (size_t s = 0; s < pieces.size(); ++s) {
      const Packing& packing = packing_of(pieces[s].dtype());
      const int64_t count = num_panels(pieces[s].size(0)), bytes = packing.panel_bytes(w.in_features);
      for (int64_t p = std::max(begin, first); p < std::min(end, first + count); ++p) {
        pack_panel(packing, pieces[s], p - first, w.segments[s].storage.data_as<uint8_t>() + (p - first) * bytes);
      }
      first += count;
    }
  });
  return w;
}

void embedding(const Context& ctx, const ops::TokenIds& tokens, const PackedWeight& table, int64_t vocab_begin, const Tensor& out) {
  const int64_t k = table.in_features;
  const auto one = [&](int64_t id, float* row) {
    for (const PackedWeight::Segment& segment : table.segments) {
      if (id >= 0 && id < segment.rows) {
        const Packing& packing = packing_of(segment.dtype);
        const uint8_t* panel = segment.storage.data_as<uint8_t>() + id / kPanelRows * packing.panel_bytes(k);
        packing.unpack_row(panel, k, static_cast<int>(id % kPanelRows), row);
        return;
      }
      id -= segment.rows;
    }
    std::memset(row, 0, static_cast<size_t>(k) * sizeof(float));
  };
  const auto id_of = [&](int64_t t) {
    const int32_t id = tokens.ids.data_as<int32_t>()[t];
    if (id >= 0 || !tokens.chosen.defined()) return id;
    CHECK_LT(-1 - id, tokens.chosen.size(0));
    return tokens.chosen.data_as<int32_t>()[-1 - id];
  };
  const int64_t count = tokens.ids.size(0);
  split_evenly(ctx, threads_for(ctx, count * k), count, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) one(id_of(t) - vocab_begin, out.row<float>(t));
  });
}

}  // namespace tutti::cpu

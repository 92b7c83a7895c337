// linear() and gate_up_silu(): activations are brought into tiles once, then output panels (and, where there are few
// panels for many threads, groups of rows) are dealt to the threads.
#include <cstring>
#include <optional>

#include "ops/cpu/drivers.h"
#include "ops/cpu/layout.h"
#include "ops/cpu/outliers.h"

namespace tutti::cpu {
namespace {

// Rows of one group are cut between threads at multiples of this: whole tiles at every level.
constexpr int64_t kRowUnit = 48;

// Rows computed at a time: groups as even as whole units allow, so that the last one is no leftover that reads all weights
// for a few rows.
int64_t group_of(int64_t num_rows) {
  const int64_t groups = (num_rows + kRowGroup - 1) / kRowGroup;
  return groups <= 1 ? kRowGroup : round_up((num_rows + groups - 1) / groups, kRowUnit);
}

// Up to so many rows wait for weights to come from memory, rather than for products: panels are read in turn.
constexpr int64_t kTurnsRows = 4;

// The three forms of activation tiles (layout.h).
enum Form { kFloat, kPair, kQuant, kForms };

Form form_of(const LevelKernels& level, DType weight) {
  if (is_quantized(weight)) return kQuant;
  return weight == DType::kBF16 && level.pair_tile != nullptr ? kPair : kFloat;
}

// The tiles of a group of rows, in the forms that the weight's segments read.
class Activations {
 public:
  Activations(const Context& ctx, const PackedWeight& w, int64_t num_rows, bool keep_outliers)
      : ctx_(ctx), level_(level_of(ctx)), scratch_(ctx), k_(w.in_features) {
    for (const auto& segment : w.segments) {
      const Form form = form_of(level_, segment.dtype);
      if (tiles_[form] == nullptr) tiles_[form] = scratch_.bytes(std::min(num_rows, kRowGroup) * row_bytes(form));
      if (keep_outliers && !outliers_ && Outliers::matter_to(segment.dtype)) {
        outliers_.emplace(scratch_, std::min(num_rows, kRowGroup), k_);
      }
    }
  }

  // Rows [first_row, first_row + rows) of x.
  void prepare(const Tensor& x, int64_t first_row, int64_t rows) {
    prepare_form(kFloat, x, first_row, rows, level_.float_tile_rows, level_.float_tile);
    prepare_form(kPair, x, first_row, rows, level_.pair_tile_rows, level_.pair_tile);
    prepare_form(kQuant, x, first_row, rows, level_.quant_tile_rows, level_.quant_tile);
  }

  // c [rows, 32] = the products of rows [row, row + rows) of the group with one panel of a segment.
  void multiply(const PackedWeight::Segment& segment, int64_t panel, int64_t row, int64_t rows, float* c, int64_t ldc) const {
    const uint8_t* weights = panel_data(segment, panel);
    const Form form = form_of(level_, segment.dtype);
    panel_of(level_, segment.dtype)(weights, k_, tiles_[form] + row * row_bytes(form), rows, c, ldc);
    if (outliers_ && Outliers::matter_to(segment.dtype)) outliers_->add(level_, weights, row, rows, c, ldc);
  }

  struct Part {
    const PackedWeight::Segment& segment;
    int64_t panel;
    float* c;
  };
  // The same of panels of segments of one type, where takes_turns().
  void multiply(const Part (&parts)[kPanelsInTurn], int64_t row, int64_t rows, int64_t ldc) const {
    const DType type = parts[0].segment.dtype;
    const uint8_t* panels[kPanelsInTurn];
    float* c[kPanelsInTurn];
    for (int i = 0; i < kPanelsInTurn; ++i) {
      panels[i] = panel_data(parts[i].segment, parts[i].panel);
      c[i] = parts[i].c;
    }
    turns_of(type)(panels, k_, tiles_[form_of(level_, type)] + row * row_bytes(form_of(level_, type)), rows, c, ldc);
    if (!outliers_ || !Outliers::matter_to(type)) return;
    for (int i = 0; i < kPanelsInTurn; ++i) outliers_->add(level_, panels[i], row, rows, c[i], ldc);
  }
  bool takes_turns(DType type, int64_t rows) const { return rows <= kTurnsRows && turns_of(type) != nullptr; }

 private:
  static const uint8_t* panel_data(const PackedWeight::Segment& segment, int64_t panel) {
    const int64_t panel_bytes = static_cast<int64_t>(segment.storage.bytes()) / num_panels(segment.rows);
    return segment.storage.data_as<uint8_t>() + panel * panel_bytes;
  }
  LevelKernels::TurnsKernel turns_of(DType dtype) const { return level_.panels_in_turn[static_cast<size_t>(dtype)]; }
  int64_t row_bytes(Form form) const {
    return form == kFloat ? float_row_bytes(k_) : form == kPair ? pair_row_bytes(k_) : quant_row_bytes(k_);
  }

  void prepare_form(Form form, const Tensor& x, int64_t first_row, int64_t rows, int full_tile,
                    decltype(LevelKernels::float_tile) kernel) {
    if (tiles_[form] == nullptr) return;
    const int64_t count = (rows + full_tile - 1) / full_tile;
    split_evenly(ctx_, threads_for(ctx_, rows * k_ / 4), count, [&](int64_t begin, int64_t end) {
      const int64_t stop = std::min(rows, end * full_tile);
      for (int64_t row = begin * full_tile; row < stop;) {
        const int tile_rows = next_tile_rows<>(stop - row, full_tile);
        const float* values = x.row<float>(first_row + row);
        uint8_t* tile = tiles_[form] + row * row_bytes(form);
        kernel(values, x.stride(0), tile_rows, k_, tile);
        if (form == kQuant && outliers_) outliers_->prepare(level_, values, x.stride(0), tile, tile_rows, row);
        row += tile_rows;
      }
    });
  }

  const Context& ctx_;
  const LevelKernels& level_;
  Scratch scratch_;
  int64_t k_;
  uint8_t* tiles_[kForms] = {};
  std::optional<Outliers> outliers_;
};

// body(item, row_begin, row_count) for all items, panels or some of them, and all rows of a group.
template <class Body>
void for_panels(const Context& ctx, int64_t panels, int64_t rows, int64_t k, Body&& body) {
  const int threads = threads_for(ctx, panels * kPanelRows * rows * k / 8);
  const int64_t units = (rows + kRowUnit - 1) / kRowUnit;
  const int64_t cuts = std::clamp<int64_t>(4 * threads / panels, 1, units);
  deal_out(ctx, threads, panels * cuts, [&](int64_t item) {
    const int64_t cut = item % cuts;
    const int64_t row_begin = units * cut / cuts * kRowUnit;
    const int64_t row_end = std::min(rows, units * (cut + 1) / cuts * kRowUnit);
    body(item / cuts, row_begin, row_end - row_begin);
  });
}

// c [rows, 32] = the products with one panel of a segment: in `out` itself where the panel is whole and rows are few. Many
// rows far apart would meet in the same few sets of the caches while k goes by.
class PanelOutput {
 public:
  PanelOutput(float* out, int64_t stride, int64_t columns, int64_t rows)
      : out_(out), out_stride_(stride), columns_(columns), rows_(rows), direct_(columns == kPanelRows && rows <= kDirectRows) {}
  float* data() { return direct_ ? out_ : buffer_; }
  int64_t stride() const { return direct_ ? out_stride_ : kPanelRows; }
  void finish() {
    if (direct_) return;
    for (int64_t r = 0; r < rows_; ++r) {
      std::memcpy(out_ + r * out_stride_, buffer_ + r * kPanelRows, static_cast<size_t>(columns_) * sizeof(float));
    }
  }

 private:
  static constexpr int64_t kDirectRows = 8;
  float* out_;
  int64_t out_stride_, columns_, rows_;
  bool direct_;
  alignas(64) float buffer_[kRowGroup * kPanelRows];
};

int64_t panel_columns(const PackedWeight::Segment& segment, int64_t panel) {
  return std::min<int64_t>(kPanelRows, segment.rows - panel * kPanelRows);
}

}  // namespace

void linear(const Context& ctx, const ops::Input& in, const PackedWeight& w, const Tensor& bias, const Tensor& out) {
  const LevelKernels& level = level_of(ctx);
  const Tensor& x = in.x;
  int64_t panels = 0;
  for (const auto& segment : w.segments) panels += num_panels(segment.rows);
  Activations activations(ctx, w, x.size(0), in.keep_outliers);
  const int64_t group = group_of(x.size(0));
  for (int64_t first = 0; first < x.size(0); first += group) {
    const int64_t rows = std::min(group, x.size(0) - first);
    activations.prepare(x, first, rows);
    const auto add_bias = [&](float* target, int64_t column, int64_t columns, int64_t count) {
      if (!bias.defined()) return;
      for (int64_t r = 0; r < count; ++r) level.add(target + r * out.stride(0), bias.data_as<float>() + column, columns);
    };
    // The first panel of `most` from `panel` on, or the first ones in turn. Returns how many.
    const auto some_panels = [&](int64_t panel, int64_t most, int64_t row, int64_t count) -> int64_t {
      int64_t column = 0;
      size_t s = 0;
      for (; panel >= num_panels(w.segments[s].rows); ++s) {
        panel -= num_panels(w.segments[s].rows);
        column += w.segments[s].rows;
      }
      column += panel * kPanelRows;
      float* target = out.row<float>(first + row) + column;
      const PackedWeight::Segment& segment = w.segments[s];
      const bool whole = most >= kPanelsInTurn && (panel + kPanelsInTurn) * kPanelRows <= segment.rows;
      if (whole && activations.takes_turns(segment.dtype, rows)) {
        const auto part = [&](int i) { return Activations::Part{segment, panel + i, target + i * kPanelRows}; };
        activations.multiply({part(0), part(1), part(2), part(3)}, row, count, out.stride(0));
        add_bias(target, column, kPanelsInTurn * kPanelRows, count);
        return kPanelsInTurn;
      }
      const int64_t columns = panel_columns(segment, panel);
      PanelOutput c(target, out.stride(0), columns, count);
      activations.multiply(segment, panel, row, count, c.data(), c.stride());
      c.finish();
      add_bias(target, column, columns, count);
      return 1;
    };
    const bool turns = std::any_of(w.segments.begin(), w.segments.end(),
                                   [&](const auto& segment) { return activations.takes_turns(segment.dtype, rows); });
    const int64_t together = turns ? kPanelsInTurn : 1;
    const int64_t items = (panels + together - 1) / together;
    for_panels(ctx, items, rows, together * w.in_features, [&](int64_t item, int64_t row, int64_t count) {
      const int64_t end = std::min(panels, (item + 1) * together);
      for (int64_t panel = item * together; panel < end;) panel += some_panels(panel, end - panel, row, count);
    });
  }
}

void gate_up_silu(const Context& ctx, const ops::Input& in, const PackedWeight& w, const Tensor& out) {
  const LevelKernels& level = level_of(ctx);
  const Tensor& x = in.x;
  const auto &gate = w.segments[0], &up = w.segments[1];
  Activations activations(ctx, w, x.size(0), in.keep_outliers);
  const int64_t group = group_of(x.size(0));
  for (int64_t first = 0; first < x.size(0); first += group) {
    const int64_t rows = std::min(group, x.size(0) - first);
    activations.prepare(x, first, rows);
    // Two panels of each take turns.
    const bool turns = gate.dtype == up.dtype && activations.takes_turns(gate.dtype, rows);
    const int64_t panels = num_panels(gate.rows), together = turns ? kPanelsInTurn / 2 : 1;
    const auto finish = [&](int64_t panel, int64_t row, int64_t count, const float* g, const float* u) {
      const int64_t columns = panel_columns(gate, panel);
      for (int64_t r = 0; r < count; ++r) {
        level.silu_mul(g + r * kPanelRows, u + r * kPanelRows, columns, out.row<float>(first + row + r) + panel * kPanelRows);
      }
    };
    const int64_t items = (panels + together - 1) / together;
    for_panels(ctx, items, rows, 2 * together * w.in_features, [&](int64_t item, int64_t row, int64_t count) {
      alignas(64) float g[kRowGroup * kPanelRows];
      alignas(64) float u[kRowGroup * kPanelRows];
      const int64_t panel = item * together, end = std::min(panels, panel + together);
      if (turns && end - panel == together) {
        float *g2 = g + count * kPanelRows, *u2 = u + count * kPanelRows;
        activations.multiply({{gate, panel, g}, {up, panel, u}, {gate, panel + 1, g2}, {up, panel + 1, u2}}, row, count,
                             kPanelRows);
        finish(panel, row, count, g, u);
        return finish(panel + 1, row, count, g2, u2);
      }
      for (int64_t p = panel; p < end; ++p) {
        activations.multiply(gate, p, row, count, g, kPanelRows);
        activations.multiply(up, p, row, count, u, kPanelRows);
        finish(p, row, count, g, u);
      }
    });
  }
}

}  // namespace tutti::cpu

// Norms, rotation, residual sums, row gathering and cache writes: rows dealt to the threads.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/cpu/drivers.h"
#include "ops/cpu/layout.h"
#include "tensor/quantize.h"

namespace tutti::cpu {
namespace {

// rows(i, p, q) over the rows of x and out, which have the same two or three dimensions.
template <class Row>
void for_rows(const Context& ctx, const Tensor& x, const Tensor& out, Row&& row) {
  const int64_t outer = x.size(0), inner = x.rank() == 3 ? x.size(1) : 1, n = x.size(x.rank() - 1);
  const int64_t x_stride = x.rank() == 3 ? x.stride(1) : 0, out_stride = x.rank() == 3 ? out.stride(1) : 0;
  split_evenly(ctx, threads_for(ctx, outer * inner * n / 2), outer, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < inner; ++j) row(x.row<float>(i) + j * x_stride, out.row<float>(i) + j * out_stride, n);
    }
  });
}

}  // namespace

void rms_norm(const Context& ctx, const Tensor& x, const Tensor& weight, double eps, const Tensor& out) {
  const auto kernel = level_of(ctx).rms_norm;
  for_rows(ctx, x, out, [&](const float* p, float* q, int64_t n) {
    kernel(p, weight.data_as<float>(), n, static_cast<float>(eps), q);
  });
}

void add_rms_norm(const Context& ctx, const Tensor& residual, const Tensor& delta, const Tensor& weight, double eps,
                  const Tensor& out) {
  const LevelKernels& level = level_of(ctx);
  const int64_t n = residual.size(1);
  split_evenly(ctx, threads_for(ctx, residual.size(0) * n), residual.size(0), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      level.add(residual.row<float>(i), delta.row<float>(i), n);
      level.rms_norm(residual.row<float>(i), weight.data_as<float>(), n, static_cast<float>(eps), out.row<float>(i));
    }
  });
}

void add(const Context& ctx, const Tensor& x, const Tensor& y) {
  const auto kernel = level_of(ctx).add;
  for_rows(ctx, y, x, [&](const float* p, float* q, int64_t n) { kernel(q, p, n); });
}

void rope(const Context& ctx, const Tensor& x, const Tensor& positions, const Tensor& cos_sin, RopeLayout layout) {
  const LevelKernels& level = level_of(ctx);
  const auto kernel = layout == RopeLayout::kHalf ? level.rope_half : level.rope_interleaved;
  const int64_t half = cos_sin.size(2);
  const int64_t work = x.size(0) * x.size(1) * half;
  split_evenly(ctx, threads_for(ctx, work), x.size(0), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t position = positions.data_as<int32_t>()[t];
      CHECK(position >= 0 && position < cos_sin.size(0));
      const float* cos = cos_sin.row<float>(position);
      for (int64_t h = 0; h < x.size(1); ++h) kernel(x.row<float>(t) + h * x.stride(1), cos, cos + half, half);
    }
  });
}

namespace {

// One token's key or value of one head into its place inside a block; `head` is the head's start there. Elements of a
// key lie `block_size` apart, those of a value side by side (attention_kernels.h).
struct HeadWriter {
  const LevelKernels& level;
  int64_t block_size, head_dim;

  void operator()(const float* x, bool key, int64_t offset, float* head) const {
    if (!key) {
      std::memcpy(head + offset * head_dim, x, static_cast<size_t>(head_dim) * sizeof(float));
    } else {
      for (int64_t d = 0; d < head_dim; ++d) head[d * block_size + offset] = x[d];
    }
  }
  void operator()(const float* x, bool key, int64_t offset, uint16_t* head) const {
    uint16_t row[kMaxHeadDim];
    level.to_bf16(x, head_dim, key ? row : head + offset * head_dim);
    for (int64_t d = 0; key && d < head_dim; ++d) head[d * block_size + offset] = row[d];
  }
  // int8 codes, then the scales.
  void operator()(const float* x, bool key, int64_t offset, int8_t* head) const {
    constexpr uint16_t kHalfNan = 0x7e00;
    constexpr int64_t kBytes = 2 + kBlock;  // of a Q8_0 block: { half scale; int8 codes[32] }
    uint8_t row[kMaxHeadDim / kBlock * kBytes];
    quantize_row(x, head_dim, DType::kQ8_0, row);
    const int64_t groups = head_dim / kBlock;
    auto* scales = reinterpret_cast<uint8_t*>(head + block_size * head_dim);
    for (int64_t g = 0; g < groups; ++g) {
      uint8_t* block = row + g * kBytes;
      float zero = 0;
      for (int64_t i = 0; i < kBlock; ++i) zero += x[g * kBlock + i] * 0.0f;
      if (zero != 0.0f) std::memcpy(block, &kHalfNan, 2);  // codes alone would hide what is not a number
      std::memcpy(scales + (key ? g * block_size + offset : offset * groups + g) * 2, block, 2);
      const auto* codes = reinterpret_cast<const int8_t*>(block + 2);
      for (int64_t i = 0; i < kBlock; ++i) {
        const int64_t d = g * kBlock + i;
        head[key ? d * block_size + offset : offset * head_dim + d] = codes[i];
      }
    }
  }
};

}  // namespace

void write_kv(const Context& ctx, const Tensor& k, const Tensor& v, const AttentionMetadata& meta, const KVLayer& cache) {
  const int64_t heads = k.size(1), head_dim = k.size(2), block_size = cache.block_size();
  const DType type = cache.keys.dtype();
  CHECK_LE(head_dim, kMaxHeadDim);
  CHECK_EQ(head_dim % dtype_info(type).block_size, 0);
  const HeadWriter writer{level_of(ctx), block_size, head_dim};
  const auto head_bytes = static_cast<int64_t>(dtype_bytes(type, block_size * head_dim));
  const auto write = [&]<class T>(int64_t head_begin, int64_t head_end, T* keys, T* values) {
    const int64_t head_elements = head_bytes / static_cast<int64_t>(sizeof(T));
    for (int64_t t = 0; t < meta.num_tokens; ++t) {
      const int64_t slot = meta.slot_mapping.data_as<int64_t>()[t];
      CHECK(slot >= 0 && slot < cache.keys.size(0) * block_size);
      for (int64_t h = head_begin; h < head_end; ++h) {
        const int64_t head = (slot / block_size * heads + h) * head_elements, offset = slot % block_size;
        writer(k.row<float>(t) + h * k.stride(1), true, offset, keys + head);
        writer(v.row<float>(t) + h * v.stride(1), false, offset, values + head);
      }
    }
  };
  split_evenly(ctx, threads_for(ctx, meta.num_tokens * heads * head_dim), heads, [&](int64_t begin, int64_t end) {
    if (type == DType::kQ8_0) {
      write(begin, end, cache.keys.data_as<int8_t>(), cache.values.data_as<int8_t>());
    } else if (type == DType::kBF16) {
      write(begin, end, cache.keys.data_as<uint16_t>(), cache.values.data_as<uint16_t>());
    } else {
      write(begin, end, cache.keys.data_as<float>(), cache.values.data_as<float>());
    }
  });
}

void rope_write_kv(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos_sin, RopeLayout layout,
                   const AttentionMetadata& meta, const KVLayer& cache) {
  rope(ctx, q, meta.positions, cos_sin, layout);
  rope(ctx, k, meta.positions, cos_sin, layout);
  write_kv(ctx, k, v, meta, cache);
}

namespace {

// NaN is less than everything.
bool larger(float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

}  // namespace

void argmax(const Context& ctx, const Tensor& x, const Tensor& values, const Tensor& indices, int64_t first) {
  const int64_t columns = x.size(1);
  split_evenly(ctx, threads_for(ctx, x.numel()), x.size(0), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = x.row<float>(r);
      int64_t best = 0;
      for (int64_t i = 1; i < columns; ++i) {
        if (larger(row[i], row[best])) best = i;
      }
      values.data_as<float>()[r] = row[best];
      indices.data_as<int32_t>()[r] = static_cast<int32_t>(first + best);
    }
  });
}

void best_of_parts(const Context&, const Tensor& parts, const Tensor& values, const Tensor& indices) {
  const int64_t n = parts.size(2);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t part = 0; part < parts.size(0); ++part) {
      const int32_t index = parts.row<int32_t>(part)[i];
      const float value = parts.row<float>(part)[n + i];
      float& best = values.data_as<float>()[i];
      int32_t& where = indices.data_as<int32_t>()[i];
      if (part > 0 && !larger(value, best) && (larger(best, value) || index > where)) continue;
      best = value;
      where = index;
    }
  }
}

void gather_rows(const Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out) {
  const size_t bytes = dtype_bytes(x.dtype(), x.size(1));
  split_evenly(ctx, threads_for(ctx, out.numel() / 4), rows.size(0), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = rows.data_as<int32_t>()[i];
      CHECK(row >= 0 && row < x.size(0));
      std::memcpy(out.row<uint8_t>(i), x.row<uint8_t>(row), bytes);
    }
  });
}

void copy_with_table(const Context&, const Tensor& from, const Tensor& to, const Tensor& table, const Tensor& to_table) {
  std::memcpy(to.data(), from.data(), from.bytes());
  for (int64_t r = 0; r < table.size(0); ++r) std::memcpy(to_table.row<int32_t>(r), table.row<int32_t>(r), dtype_bytes(DType::kI32, table.size(1)));
}

}  // namespace tutti::cpu

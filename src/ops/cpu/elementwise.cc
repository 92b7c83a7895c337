// Norms, rotation, residual sums, row gathering and cache writes: rows dealt to the threads.
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/cpu/drivers.h"

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

void write_kv(const Context& ctx, const Tensor& k, const Tensor& v, const AttentionMetadata& meta, const KVLayer& cache) {
  const LevelKernels& level = level_of(ctx);
  const int64_t heads = k.size(1), head_dim = k.size(2), block_size = cache.block_size();
  const bool bf16 = cache.keys.dtype() == DType::kBF16;
  // Keys are stored dimension by dimension inside a block, so that 16 of them meet a query element in one vector.
  const auto write = [&]<class T>(int64_t head_begin, int64_t head_end, T* keys, T* values) {
    T row[kMaxHeadDim];
    CHECK_LE(head_dim, kMaxHeadDim);
    for (int64_t t = 0; t < meta.num_tokens; ++t) {
      const int64_t slot = meta.slot_mapping.data_as<int64_t>()[t];
      CHECK(slot >= 0 && slot < cache.keys.size(0) * block_size);
      for (int64_t h = head_begin; h < head_end; ++h) {
        const int64_t block = (slot / block_size * heads + h) * block_size * head_dim, offset = slot % block_size;
        const auto convert = [&](const Tensor& x, T* out) {
          const float* source = x.row<float>(t) + h * x.stride(1);
          if constexpr (sizeof(T) == 2) {
            level.to_bf16(source, head_dim, out);
          } else {
            std::memcpy(out, source, static_cast<size_t>(head_dim) * sizeof(float));
          }
        };
        convert(v, values + block + offset * head_dim);
        convert(k, row);
        for (int64_t d = 0; d < head_dim; ++d) keys[block + d * block_size + offset] = row[d];
      }
    }
  };
  split_evenly(ctx, threads_for(ctx, meta.num_tokens * heads * head_dim), heads, [&](int64_t begin, int64_t end) {
    if (bf16) {
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

void argmax(const Context& ctx, const Tensor& x, const Tensor& values, const Tensor& indices) {
  const int64_t columns = x.size(1);
  split_evenly(ctx, threads_for(ctx, x.numel()), x.size(0), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = x.row<float>(r);
      int64_t best = 0;
      for (int64_t i = 1; i < columns; ++i) {
        if (row[i] > row[best] || (std::isnan(row[best]) && !std::isnan(row[i]))) best = i;
      }
      values.data_as<float>()[r] = row[best];
      indices.data_as<int32_t>()[r] = static_cast<int32_t>(best);
    }
  });
}

void take_pending(const Context&, const Tensor& ids, const Tensor& tokens) {
  for (int64_t i = 0; i < ids.size(0); ++i) {
    int32_t& id = ids.data_as<int32_t>()[i];
    if (id >= 0) continue;
    CHECK_LT(-1 - id, tokens.size(0));
    id = tokens.data_as<int32_t>()[-1 - id];
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

}  // namespace tutti::cpu

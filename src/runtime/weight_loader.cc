#include "runtime/weight_loader.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "ops/ops.h"
#include "runtime/dummy_weights.h"
#include "runtime/fp8_weights.h"
#include "tensor/dequantize.h"
#include "tensor/device_memory.h"
#include "tensor/quantize.h"

namespace tutti {
namespace {

float half_to_float(uint16_t half) {
  _Float16 value;
  std::memcpy(&value, &half, sizeof value);
  return static_cast<float>(value);
}

void plain_row_to_float(const void* row, DType dtype, int64_t count, float* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, row, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const auto* in = static_cast<const uint16_t*>(row);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = dtype == DType::kBF16 ? std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16) : half_to_float(in[i]);
  }
}

std::string shape_text(const Parameter& p) {
  return p.is_vector() ? "[" + std::to_string(p.rows) + "]"
                       : "[" + std::to_string(p.rows) + ", " + std::to_string(p.columns) + "]";
}

class Loader {
 public:
  Loader(const ModelSource& source, const Context& ctx) : source_(source), ctx_(ctx) {}

  void fill(const ParameterSlot& slot) {
    if (slot.matrix != nullptr) {
      fill_matrix(slot);
    } else {
      fill_vector(slot);
    }
  }

 private:
  void fill_matrix(const ParameterSlot& slot) {
    const bool fp8 = std::all_of(slot.pieces.begin(), slot.pieces.end(),
                                 [&](const Parameter& p) { return source_.kept_dtype(p) == DType::kF8E4M3; });
    std::vector<Tensor> pieces;
    std::vector<Tensor> scales;
    if (fp8 && std::all_of(slot.pieces.begin(), slot.pieces.end(), [&](const Parameter& p) { return has_row_scales(p); })) {
      for (const Parameter& parameter : slot.pieces) {
        pieces.push_back(slice(parameter));
        scales.push_back(read_fp8_scales(source_, parameter).of_rows());
      }
    } else {
      for (const Parameter& parameter : slot.pieces) pieces.push_back(wide(parameter));
    }
    *slot.matrix = fp8 ? ops::pack_weight_fp8(ctx_, pieces, scales) : ops::pack_weight(ctx_, pieces);
    if (source_.dummy) return;
    // All of it: the kernel maps pages around those that are read.
    for (const Parameter& parameter : slot.pieces) source_.checkpoint->release(find(parameter));
  }

  bool has_row_scales(const Parameter& parameter) const {
    return source_.stored_as_fp8(parameter) && !read_fp8_scales(source_, parameter).by_blocks();
  }

  // This rank's part in a type that is not FP8.
  Tensor wide(const Parameter& parameter) const {
    const DType dtype = source_.gpu_activations.value_or(source_.weight_dtype(parameter));
    if (source_.dummy) return with_dtype(dummy_values(parameter, *ctx_.pool), dtype);
    const Tensor piece = slice(parameter);
    if (piece.dtype() == DType::kF8E4M3) return widen_fp8(piece, read_fp8_scales(source_, parameter), dtype, *ctx_.pool);
    return with_dtype(piece, dtype);
  }

  void fill_vector(const ParameterSlot& slot) {
    int64_t length = 0;
    for (const Parameter& parameter : slot.pieces) length += parameter.local_rows();
    Tensor vector = Tensor::empty({length}, DType::kF32);
    float* out = vector.data_as<float>();
    for (const Parameter& parameter : slot.pieces) {
      const Tensor piece = source_.dummy ? dummy_values(parameter, *ctx_.pool) : slice(parameter);
      plain_row_to_float(piece.data(), piece.dtype(), piece.numel(), out);
      out += piece.numel();
    }
    *slot.vector = cuda::to_device(vector, ctx_.device);
  }

  // The tensor in the file, checked against what the model expects.
  const Tensor& find(const Parameter& parameter) const {
    const std::string name = source_.file_name(parameter.name);
    const Tensor* tensor = source_.checkpoint->find(name);
    if (tensor == nullptr) throw IoError(source_.path + ": tensor " + name + " is missing: is the download complete?");
    const bool fits = parameter.is_vector()
                          ? tensor->rank() == 1 && tensor->size(0) == parameter.rows
                          : tensor->rank() == 2 && tensor->size(0) == parameter.rows && tensor->size(1) == parameter.columns;
    if (!fits) {
      throw IoError(source_.path + ": tensor " + name + " is " + tensor->describe() + ", but the configuration asks for " +
                    shape_text(parameter) + ": config and weights do not belong together");
    }
    const DType dtype = tensor->dtype();
    const bool plain = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
    if (!plain && (parameter.is_vector() || !(is_quantized(dtype) || dtype == DType::kF8E4M3))) {
      throw IoError(source_.path + ": tensor " + name + " is of type " + std::string(dtype_name(dtype)) +
                    ", expected F32, F16 or BF16" + (parameter.is_vector() ? "" : ", F8_E4M3 or a GGUF block type"));
    }
    return *tensor;
  }

  Tensor slice(const Parameter& parameter) const {
    const Tensor& tensor = find(parameter);
    const Range& range = parameter.shard.range;
    switch (parameter.shard.dim) {
      case ShardRule::Dim::kRows:
        return tensor.slice(0, range.begin, range.count);
      case ShardRule::Dim::kColumns:
        return tensor.slice(1, range.begin, range.count);
      case ShardRule::Dim::kWhole:
        break;
    }
    return tensor;
  }

  Tensor with_dtype(const Tensor& piece, DType dtype) const {
    if (piece.dtype() == dtype) return piece;
    const bool plain = piece.dtype() == DType::kF32 || piece.dtype() == DType::kF16 || piece.dtype() == DType::kBF16;
    const int64_t rows = piece.size(0);
    const int64_t columns = piece.size(1);
    Tensor converted = Tensor::empty({rows, columns}, dtype);
    ctx_.pool->parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
      std::vector<float> row(static_cast<size_t>(columns));
      for (int64_t r = begin; r < end; ++r) {
        if (plain) plain_row_to_float(piece.row<std::byte>(r), piece.dtype(), columns, row.data());
        else dequantize_row(piece.dtype(), piece.row<std::byte>(r), columns, row.data());
        quantize_row(row.data(), columns, dtype, converted.row<std::byte>(r));
      }
    });
    return converted;
  }

  const ModelSource& source_;
  const Context& ctx_;
};

int64_t slot_bytes(const ModelSource& source, const ParameterSlot& slot) {
  int64_t sum = 0;
  for (const Parameter& parameter : slot.pieces) {
    const DType dtype = source.kept_dtype(parameter);
    sum += static_cast<int64_t>(dtype_bytes(dtype, parameter.local_elements()));
    if (dtype == DType::kF8E4M3) sum += 4 * parameter.local_rows();  // scales
  }
  return sum;
}

}  // namespace

int64_t parameter_bytes(const ModelSource& source, const ParameterList& parameters) {
  int64_t sum = 0;
  for (const ParameterSlot& slot : parameters.slots()) sum += slot_bytes(source, slot);
  return sum;
}

void load_weights(const ModelSource& source, const Context& ctx, const ParameterList& parameters, const LoadProgress& progress) {
  const int64_t total = parameter_bytes(source, parameters);
  int64_t done = 0;
  Loader loader(source, ctx);
  for (const ParameterSlot& slot : parameters.slots()) {
    loader.fill(slot);
    done += slot_bytes(source, slot);
    if (progress) progress(done, total);
  }
}

}  // namespace tutti

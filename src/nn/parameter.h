// A weight of the model and the part of it that this rank holds. Layer constructors declare their parameters; the
// weight loader (runtime/weight_loader) is one loop over them. Declared and filled on the worker thread before the
// first step, constant afterwards.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/check.h"
#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace tutti {

// [begin, begin + count) of a dimension.
struct Range {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t end() const { return begin + count; }
  Range times(int64_t n) const { return {begin * n, count * n}; }
  bool operator==(const Range&) const = default;
};

// How a weight of the whole model is cut for this rank.
struct ShardRule {
  enum class Dim : uint8_t { kWhole, kRows, kColumns };
  Dim dim = Dim::kWhole;
  Range range;

  static ShardRule whole() { return {}; }
  static ShardRule rows(Range range) { return {Dim::kRows, range}; }
  static ShardRule columns(Range range) { return {Dim::kColumns, range}; }
};

struct Parameter {
  std::string name;     // the project's own name, "layers.3.attention.q.weight"; a family maps it to its files' names
  int64_t rows = 0;     // of the whole model: output features, or the length of a vector
  int64_t columns = 0;  // input features; 0 for a vector
  ShardRule shard;

  bool is_vector() const { return columns == 0; }
  int64_t local_rows() const { return shard.dim == ShardRule::Dim::kRows ? shard.range.count : rows; }
  int64_t local_columns() const { return shard.dim == ShardRule::Dim::kColumns ? shard.range.count : columns; }
  int64_t local_elements() const { return local_rows() * (is_vector() ? 1 : local_columns()); }
};

// One tensor in memory: parameters whose rows are stacked (q, k and v; gate and up), into one packed matrix or one
// F32 vector.
struct ParameterSlot {
  std::vector<Parameter> pieces;
  PackedWeight* matrix = nullptr;
  Tensor* vector = nullptr;
};

// Every slot of the layers of one rank. The targets are members of layers, so layers never move.
class ParameterList {
 public:
  void add_matrix(PackedWeight& target, std::vector<Parameter> pieces) {
    slots_.push_back({std::move(pieces), &target, nullptr});
  }
  void add_vector(Tensor& target, std::vector<Parameter> pieces) {
    slots_.push_back({std::move(pieces), nullptr, &target});
  }
  const std::vector<ParameterSlot>& slots() const { return slots_; }

 private:
  std::vector<ParameterSlot> slots_;
};

}  // namespace tutti

// F32, F16 and BF16 weights: two consecutive k of a panel at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "ops/cpu/half.h"
#include "ops/cpu/layout.h"
#include "tensor/dtype.h"

namespace tutti::cpu {

struct PlainF32 {
  static constexpr DType kType = DType::kF32;
  static constexpr int kElementBytes = 4;
  static constexpr int kPackStep = 1;  // consecutive elements of a row that stay together in a panel
  static int64_t index(int row, int64_t k) { return k * kPanelRows + row; }  // of an element in its panel
  static float value(const uint8_t* p) {
    float f;
    std::memcpy(&f, p, 4);
    return f;
  }
  // Rows [column, column + V::kLanes) at k and k + 1, `pair` being the panel's row k / 2.
  template <class V>
  static typename V::F load_first(const uint8_t* pair, int column) {
    return V::load(reinterpret_cast<const float*>(pair) + column);
  }
  template <class V>
  static typename V::F load_second(const uint8_t* pair, int column) {
    return V::load(reinterpret_cast<const float*>(pair) + kPanelRows + column);
  }
};

struct PlainF16 {
  static constexpr DType kType = DType::kF16;
  static constexpr int kElementBytes = 2;
  static constexpr int kPackStep = 1;
  static int64_t index(int row, int64_t k) { return k * kPanelRows + row; }
  static float value(const uint8_t* p) {
    uint16_t h;
    std::memcpy(&h, p, 2);
    return half_to_float(h);
  }
  template <class V>
  static typename V::F load_first(const uint8_t* pair, int column) {
    return V::load_half(reinterpret_cast<const uint16_t*>(pair) + column);
  }
  template <class V>
  static typename V::F load_second(const uint8_t* pair, int column) {
    return V::load_half(reinterpret_cast<const uint16_t*>(pair) + kPanelRows + column);
  }
};

struct PlainBF16 {
  static constexpr DType kType = DType::kBF16;
  static constexpr int kElementBytes = 2;
  static constexpr int kPackStep = 2;
  static int64_t index(int row, int64_t k) { return (k / 2 * kPanelRows + row) * 2 + k % 2; }
  static float value(const uint8_t* p) {
    uint16_t b;
    std::memcpy(&b, p, 2);
    return bf16_to_float(b);
  }
  template <class V>
  static typename V::F load_first(const uint8_t* pair, int column) {
    return V::pair_first(pair + column * 4);
  }
  template <class V>
  static typename V::F load_second(const uint8_t* pair, int column) {
    return V::pair_second(pair + column * 4);
  }
};

}  // namespace tutti::cpu

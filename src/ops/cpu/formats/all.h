// The weight formats that the CPU kernels know. One row each: packing, the embedding and every instruction set level
// are made from this list.
#pragma once

#include "ops/cpu/formats/plain.h"
#include "ops/cpu/formats/q4_0.h"
#include "ops/cpu/formats/q4_1.h"
#include "ops/cpu/formats/q8_0.h"

namespace tutti::cpu {

template <class... Formats>
struct FormatList {
  // visit.operator()<Format>() for each.
  template <class Visitor>
  static void for_each(Visitor&& visit) {
    (visit.template operator()<Formats>(), ...);
  }
};

using PlainFormats = FormatList<PlainF32, PlainF16, PlainBF16>;
using BlockFormats = FormatList<Q8_0, Q4_0, Q4_1>;

}  // namespace tutti::cpu

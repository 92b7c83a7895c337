// The weight formats that the CPU kernels know. One row each: packing, the embedding and every instruction set level
// are made from this list.
#pragma once

#include "ops/cpu/formats/iq4_nl.h"
#include "ops/cpu/formats/iq4_xs.h"
#include "ops/cpu/formats/plain.h"
#include "ops/cpu/formats/q2_k.h"
#include "ops/cpu/formats/q3_k.h"
#include "ops/cpu/formats/q4_0.h"
#include "ops/cpu/formats/q4_1.h"
#include "ops/cpu/formats/q4_k.h"
#include "ops/cpu/formats/q5_0.h"
#include "ops/cpu/formats/q5_1.h"
#include "ops/cpu/formats/q5_k.h"
#include "ops/cpu/formats/q6_k.h"
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
using BlockFormats = FormatList<Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS>;

}  // namespace tutti::cpu

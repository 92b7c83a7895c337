// The generated tables behind jinja_unicode.h, which is the only one to read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace tutti::jinja {

// Code points first, first + stride, ... last map to themselves plus delta.
struct CaseRun {
  uint32_t first, last, stride;
  int32_t delta;
};

struct SpecialCase {
  uint32_t code_point;
  const char* mapped;
};

extern const uint16_t kPropertyClasses[];  // sets of CharFlag bits
extern const uint32_t kPropertyRuns[];     // pairs: run length, index into kPropertyClasses
extern const size_t kPropertyRunCount;
extern const CaseRun kUpperRuns[], kLowerRuns[], kTitleRuns[], kFoldRuns[];
extern const size_t kUpperRunCount, kLowerRunCount, kTitleRunCount, kFoldRunCount;
extern const SpecialCase kUpperSpecial[], kLowerSpecial[], kTitleSpecial[], kFoldSpecial[];
extern const size_t kUpperSpecialCount, kLowerSpecialCount, kTitleSpecialCount, kFoldSpecialCount;

}  // namespace tutti::jinja

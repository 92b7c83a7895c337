// Processor features that compilers' builtins do not name alike.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tutti {

// F16C (half precision conversions): CPUID leaf 1, ECX bit 29. clang 16's __builtin_cpu_supports has no name for it.
inline bool cpu_supports_f16c() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1) != 0;
#else
  return false;
#endif
}

// Tile registers with 8-bit and bfloat16 products: CPUID leaf 7, EDX bits 24, 25 and 22.
inline bool cpu_supports_amx() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAll = 1u << 22 | 1u << 24 | 1u << 25;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAll) == kAll;
#else
  return false;
#endif
}

}  // namespace tutti

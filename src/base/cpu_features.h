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

}  // namespace tutti

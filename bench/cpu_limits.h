// What this machine can do at most, measured now: the yardstick of bench_ops.
#pragma once

#include "base/thread_pool.h"

namespace tutti::bench {

struct CpuLimits {
  double read_gb_s = 0;      // streaming reads of a buffer far larger than the caches
  double fma_gflop_s = 0;    // float fused multiply-adds, widest vectors
  double int8_gop_s = 0;     // 8-bit dot products: VNNI, else AVX2 with sums of 16 bits; 0 without both
};

// Best of a few short runs on all threads of the pool, of one and of four streams a thread.
double measure_read(ThreadPool& pool);
// Reads of a GiB in four streams a thread, all of their time counted: on a machine that others use, what a stream of weights can hope for.
double measure_sustained_read(ThreadPool& pool);
CpuLimits measure_limits(ThreadPool& pool);

}  // namespace tutti::bench

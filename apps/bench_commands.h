// The benchmarks of `tutti bench`. Main thread; each returns the exit code.
#pragma once

#include "apps/commands.h"

namespace tutti {

int run_bench_serve(const Arguments& arguments);
int run_bench_latency(const Arguments& arguments);
int run_bench_throughput(const Arguments& arguments);
int run_bench_comm(const Arguments& arguments);

}  // namespace tutti

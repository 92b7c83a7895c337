// What the benchmarks' command lines share.
#pragma once

#include <span>

#include "apps/flag_parser.h"
#include "bench/workload.h"

namespace tutti {

// --dataset-name, --num-prompts, --input-len, --random-..., --prefix-repetition-..., --custom-...; --seed is not among
// them: a model's flags have it already.
class WorkloadFlags {
 public:
  WorkloadFlags(FlagParser& parser, WorkloadOptions& options);
  // After parsing: --input-len and --output-len stand for those of whatever dataset was chosen.
  void settle() const;

 private:
  const FlagParser& parser_;
  WorkloadOptions& options_;
  int64_t input_len_ = 0;
  int64_t output_len_ = 0;
  bool disable_shuffle_ = false;
  bool no_oversample_ = false;
};

// Flags of `vllm bench serve` that are hints here, or errors.
std::span<const FlagRule> bench_serve_flag_rules();

}  // namespace tutti

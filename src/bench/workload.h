// The prompts of a benchmark: made up with a given number of tokens, or read from a file of conversations. The same
// options and seed give the same prompts. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace tutti {

struct WorkloadOptions {
  std::string dataset = "random";  // random, prefix_repetition, sharegpt, custom
  std::string path;                // of sharegpt (JSON) and custom (one JSON object a line)
  int64_t num_prompts = 1000;
  uint64_t seed = 0;
  bool shuffle = true;
  bool oversample = true;  // a file with fewer prompts than asked for gives some of them again

  int64_t random_input_len = 1024;
  int64_t random_output_len = 128;
  double random_range_ratio = 0;  // lengths from (1 - r) to (1 + r) times the above
  int64_t random_prefix_len = 0;  // the same for all, on top of the input

  int64_t prefix_len = 256;  // prefix_repetition
  int64_t suffix_len = 256;
  int64_t num_prefixes = 10;
  int64_t prefix_output_len = 128;

  int64_t file_output_len = 0;      // in place of what the file says; 0 = the file's
  int64_t default_output_len = 256; // custom: of lines without "output_tokens"
};

struct BenchPrompt {
  std::string text;
  int64_t num_tokens = 0;  // without special tokens
  int64_t output_len = 0;
};

// Throws ConfigError for options that cannot be, IoError for a broken file.
std::vector<BenchPrompt> make_prompts(const WorkloadOptions& options, const Tokenizer& tokenizer);

struct ArrivalOptions {
  double rate = 0;        // requests a second; 0 = all at once
  double burstiness = 1;  // 1 = Poisson, below 1 burstier, above more even
  std::string ramp_up;    // "", linear or exponential
  double ramp_start = 0;
  double ramp_end = 0;
  uint64_t seed = 0;
};

// When each request is sent, in seconds, ascending.
std::vector<double> make_arrivals(const ArrivalOptions& options, size_t count);

}  // namespace tutti

#include "apps/bench_flags.h"

#include <array>

namespace tutti {
namespace {

using enum FlagState;
using enum FlagKind;

constexpr std::string_view kTextOnly = "only prompts of text are sent";
constexpr std::string_view kNoHub = "datasets are not fetched: --dataset-name custom --dataset-path FILE reads one prompt a line";
constexpr std::string_view kNoPlots = "nothing is drawn: --save-result --save-detailed writes all numbers";
constexpr std::string_view kNoLora = "LoRA adapters are not served";

constexpr std::array kServeRules = {
    FlagRule{"--tokenizer-mode", kHint, kValue, "auto|hf|slow", "the tokenizer's files decide"},
    FlagRule{"--trust-remote-code", kHint, kSwitch, "on", "no code of a model is ever run"},
    FlagRule{"--skip-tokenizer-init", kError, kSwitch, "", "prompts are made to a number of tokens: give --tokenizer FOLDER"},
    FlagRule{"--use-beam-search", kError, kSwitch, "", "beam search is not measured"},
    FlagRule{"--profile", kError, kSwitch, "", "the server has no profiler to start: tutti status says where the time goes"},
    FlagRule{"--plot-timeline", kError, kSwitch, "", kNoPlots},
    FlagRule{"--plot-dataset-stats", kError, kSwitch, "", kNoPlots},
    FlagRule{"--lora-modules", kError, kList, "", kNoLora},
    FlagRule{"--lora-assignment", kHint, kValue, "random", kNoLora},
    FlagRule{"--insecure", kHint, kSwitch, "", "the server is asked over plain HTTP"},
    FlagRule{"--probe-request-rate", kError, kValue, "0|0.0", "no probes are sent beside the load"},
    FlagRule{"--hf-subset", kError, kValue, "", kNoHub},
    FlagRule{"--hf-split", kError, kValue, "", kNoHub},
    FlagRule{"--hf-name", kError, kValue, "", kNoHub},
    FlagRule{"--hf-output-len", kError, kValue, "", kNoHub},
    FlagRule{"--random-mm-base-items-per-request", kError, kValue, "", kTextOnly},
};

}  // namespace

WorkloadFlags::WorkloadFlags(FlagParser& p, WorkloadOptions& w) : parser_(p), options_(w) {
  p.value("--dataset-name", &w.dataset, "random, prefix_repetition, sharegpt or custom");
  p.value("--dataset-path", &w.path, "of sharegpt (JSON) and custom ({\"prompt\": \"...\"} a line)");
  p.count("--num-prompts", &w.num_prompts, "requests to send (1000)");
  p.count("--input-len", &input_len_, "tokens of a prompt, in place of the dataset's own flag");
  p.count("--output-len", &output_len_, "tokens of an answer, likewise");
  p.count("--random-input-len", &w.random_input_len, "tokens of a random prompt (1024)");
  p.count("--random-output-len", &w.random_output_len, "tokens of its answer (128)");
  p.value("--random-range-ratio", &w.random_range_ratio, "both vary from (1 - r) to (1 + r) times that");
  p.count("--random-prefix-len", &w.random_prefix_len, "tokens that all random prompts begin with");
  p.count("--sharegpt-output-len", &w.file_output_len, "tokens of an answer, in place of the conversation's");
  p.count("--custom-output-len", &w.default_output_len, "tokens of an answer where the line does not say (256)");
  p.count("--prefix-repetition-prefix-len", &w.prefix_len, "tokens of a shared prefix (256)");
  p.count("--prefix-repetition-suffix-len", &w.suffix_len, "tokens after it (256)");
  p.count("--prefix-repetition-num-prefixes", &w.num_prefixes, "different prefixes (10)");
  p.count("--prefix-repetition-output-len", &w.prefix_output_len, "tokens of an answer (128)");
  p.toggle("--disable-shuffle", &disable_shuffle_, "keep the order of the file");
  p.toggle("--no-oversample", &no_oversample_, "never send a prompt of a file twice");
}

void WorkloadFlags::settle() const {
  options_.shuffle = !disable_shuffle_;
  options_.oversample = !no_oversample_;
  if (parser_.given("--input-len")) {
    options_.random_input_len = input_len_;
    options_.suffix_len = input_len_;
  }
  if (parser_.given("--output-len")) {
    options_.random_output_len = options_.prefix_output_len = options_.file_output_len = output_len_;
  }
}

std::span<const FlagRule> bench_serve_flag_rules() { return kServeRules; }

}  // namespace tutti

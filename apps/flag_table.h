// Every flag of `vllm serve`, sorted: it works, it is a tuning hint that is accepted with a note, or it is an error
// because it would change answers, memory, security or topology and is not built. Data only; serve_options.cc binds it.
#pragma once

#include <span>
#include <string_view>

namespace tutti {

enum class FlagState { kWorks, kHint, kError };
enum class FlagKind {
  kValue,   // --x VALUE
  kSwitch,  // --x / --no-x
  kList,    // --x A B C
};

struct FlagRule {
  std::string_view name;  // with its dashes
  FlagState state;
  FlagKind kind = FlagKind::kValue;
  // Errors and hints: values, separated by '|', that ask for what happens anyway and pass in silence. A switch is
  // harmless when it is off, unless this says "on".
  std::string_view harmless = "";
  std::string_view why = "";  // errors: what is missing and what to do; hints: what decides instead
};

std::span<const FlagRule> flag_rules();

}  // namespace tutti

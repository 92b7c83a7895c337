// The command line as people type it (vLLM's habits included), rewritten to what the parser understands: short names of
// two letters and more, underscores, dotted JSON, booleans. Pure text, no flag is interpreted here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// -tp 2, -tp=2      --tensor-parallel-size 2       (all of vLLM's short names)
// --max_model_len   --max-model-len                (the name only, never a value)
// --a=b             --a b
// --x.y.z 3         --x '{"y": {"z": 3}}'          (merged with other parts, and with --x '{...}' itself)
// Everything after a lone "--" stays as it is. Throws ConfigError when JSON parts do not fit together.
std::vector<std::string> normalize_arguments(const std::vector<std::string>& arguments);

}  // namespace tutti

// Reads a Hugging Face tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "text/json_fields.h"
#include "text/tokenizer.h"

namespace tutti {

// `config` is the parsed tokenizer_config.json, or null. `source` names the file in messages. Throws ConfigError with
// the path of the part that is not understood.
std::unique_ptr<Tokenizer> tokenizer_from_json(const SortedJson& root, const SortedJson& config,
                                               const std::string& source);

}  // namespace tutti

#include "text/tokenizer.h"

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer_json.h"

namespace tutti {

std::unique_ptr<Tokenizer> Tokenizer::from_folder(const std::string& folder) {
  const std::string json = folder + "/tokenizer.json";
  const std::string config_path = folder + "/tokenizer_config.json";
  SortedJson config;
  if (file_exists(config_path)) config = parse_sorted_json(read_file(config_path), config_path);
  if (file_exists(json)) return tokenizer_from_json(parse_sorted_json(read_file(json), json), config, json);
  throw ConfigError("no tokenizer in " + folder + ": expected tokenizer.json");
}

}  // namespace tutti

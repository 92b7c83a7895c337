// What the flags of `tutti serve` are before they are looked at, and checks that its parts share.
#pragma once

#include <string>

#include "apps/serve_options.h"
#include "base/json.h"

namespace tutti {

// Values that need a look after parsing.
struct RawValues {
  std::string model_flag;
  std::string host;
  std::string device = "auto";
  std::string quantization;
  std::string scheduling_policy = "fcfs";
  std::string log_format = "text";
  std::string override_generation_config = "{}";
  std::string chat_template_kwargs = "{}";
  std::string allowed_origins = "[]";
  std::string allowed_methods = "[\"*\"]";
  std::string allowed_headers = "[\"*\"]";
  std::string tensor_split;
  std::string layer_partition;
  bool partition_of_variable = false;  // not of the flag
  std::string data_ports;
  std::string metrics_prefix;
  double distributed_timeout = 0;
  double request_timeout = 0;
  bool debug = false;
  bool disable_log_stats = false;
};

// Throws ConfigError naming the flag.
void check_range(const char* flag, double value, double least, double most);
Json parse_object(const std::string& text, const std::string& flag);

// The API's part of the options. Throws ConfigError.
void settle_server(ServeOptions& o, const RawValues& raw);

}  // namespace tutti

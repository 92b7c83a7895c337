#include "cluster/rank_config.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "base/error.h"

namespace tutti {
namespace {

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

class JsonWriter {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    if constexpr (IsOptional<T>::value) {
      json_[name] = value ? Json(*value) : Json(nullptr);
    } else {
      json_[name] = value;
    }
  }
  Json take() { return std::move(json_); }

 private:
  Json json_ = Json::object();
};

class JsonReader {
 public:
  explicit JsonReader(const Json& json) : json_(json) {}

  template <typename T>
  void operator()(const char* name, T& value) {
    try {
      const Json& found = json_.at(name);
      if constexpr (IsOptional<T>::value) {
        if (found.is_null()) {
          value.reset();
        } else {
          value = found.get<typename T::value_type>();
        }
      } else {
        value = found.get<T>();
      }
    } catch (const Json::exception& e) {
      throw IoError(std::string("configuration from the head, field ") + name + ": " + e.what());
    }
  }

 private:
  const Json& json_;
};

// The fields that a rank needs, once for both directions. A is JsonWriter with a const config, or JsonReader.
template <typename A, typename Config>
void fields(A& a, Config& c) {
  a("model", c.model);
  a("model_path", c.model_path);
  a("load_format", c.load_format);
  a("dtype", c.dtype);
  a("device", c.device);
  a("quantization", c.quantization);
  a("fp8_weight_only", c.fp8_weight_only);
  a("batch_invariant", c.batch_invariant);
  a("enforce_eager", c.enforce_eager);
  a("disable_custom_all_reduce", c.disable_custom_all_reduce);
  a("seed", c.seed);
  a("tensor_parallel_size", c.parallel.tensor_parallel_size);
  a("pipeline_parallel_size", c.parallel.pipeline_parallel_size);
  a("data_parallel_size", c.parallel.data_parallel_size);
  a("enable_expert_parallel", c.parallel.enable_expert_parallel);
  a("tensor_split", c.parallel.tensor_split);
  a("pipeline_layer_partition", c.parallel.pipeline_layer_partition);
  a("comm_dtype", c.comm.dtype);
  a("comm_transport", c.comm.transport);
  a("tcp_streams", c.comm.tcp_streams);
  a("max_num_batched_tokens", c.scheduler.max_num_batched_tokens);
  a("max_num_seqs", c.scheduler.max_num_seqs);
  a("max_model_len", c.scheduler.max_model_len);
  a("fit_max_model_len", c.scheduler.fit_max_model_len);
  a("block_size", c.cache.block_size);
  a("enable_prefix_caching", c.cache.enable_prefix_caching);
  a("gpu_memory_utilization", c.cache.gpu_memory_utilization);
  a("kv_cache_memory_bytes", c.cache.kv_cache_memory_bytes);
  a("num_blocks_override", c.cache.num_blocks_override);
  a("kv_cache_dtype", c.cache.kv_cache_dtype);
  a("cpu_level", c.cpu_level);
  a("cpu_threads", c.cpu_threads);
  a("collective_timeout_s", c.collective_timeout_s);
}

}  // namespace

int RankConfig::ranks_on_node() const {
  return static_cast<int>(std::count(node_of_rank.begin(), node_of_rank.end(), node_of_rank[static_cast<size_t>(rank)]));
}

int RankConfig::local_rank() const {
  return static_cast<int>(std::count(node_of_rank.begin(), node_of_rank.begin() + rank, node_of_rank[static_cast<size_t>(rank)]));
}

Json to_json(const EngineConfig& config) {
  JsonWriter writer;
  fields(writer, config);
  return writer.take();
}

EngineConfig engine_config_from_json(const Json& json) {
  EngineConfig config;
  JsonReader reader(json);
  fields(reader, config);
  return config;
}

std::string to_text(const RankConfig& config) {
  return dump_json({{"rank", config.rank},
                    {"epoch", config.epoch},
                    {"node_name", config.node_name},
                    {"address", config.address},
                    {"port_min", config.port_min},
                    {"port_max", config.port_max},
                    {"secret", config.secret},
                    {"node_of_rank", config.node_of_rank},
                    {"engine", to_json(config.engine)}});
}

RankConfig rank_config_from_text(const std::string& text) {
  const Json json = parse_json(text, "configuration from the head");
  RankConfig config;
  JsonReader reader(json);
  reader("rank", config.rank);
  reader("epoch", config.epoch);
  reader("node_name", config.node_name);
  reader("address", config.address);
  reader("port_min", config.port_min);
  reader("port_max", config.port_max);
  reader("secret", config.secret);
  reader("node_of_rank", config.node_of_rank);
  if (!json.contains("engine")) throw IoError("configuration from the head, field engine: missing");
  config.engine = engine_config_from_json(json["engine"]);
  if (config.rank < 0 || config.rank >= config.world_size()) {
    throw IoError("configuration from the head: rank " + std::to_string(config.rank) + " of " +
                  std::to_string(config.world_size()));
  }
  return config;
}

}  // namespace tutti

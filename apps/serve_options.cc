#include "apps/serve_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/environment.h"
#include "apps/flag_parser.h"
#include "apps/serve_values.h"
#include "base/error.h"
#include "base/file.h"
#include "ops/cpu/isa.h"
#include "ops/kernel_table.h"
#include "tensor/device_memory.h"

namespace tutti {
namespace {

void model_flags(FlagParser& p, ServeOptions& o, RawValues& raw) {
  p.positional("model", &o.engine.model, "a folder, a .gguf file, or a name in the Hugging Face cache");
  p.section("Model");
  p.value("--model", &raw.model_flag, "the same as the first argument");
  p.value("--revision", &o.revision, "of a model in the Hugging Face cache");
  p.value("--tokenizer", &o.tokenizer, "a folder with a tokenizer, in place of the model's");
  p.value("--load-format", &o.engine.load_format, "auto, safetensors, gguf or dummy (made-up weights)");
  p.value("--dtype", &o.engine.dtype, "auto, float32, float16 or bfloat16");
  p.value("--device", &raw.device, "auto (a GPU where there is one), cuda or cpu");
  p.value("--quantization", &raw.quantization, "-q: fp8 = matrices become FP8 at load (GPUs); unset: as in the files");
  p.toggle("--fp8-weight-only", &o.engine.fp8_weight_only, "activations that meet FP8 weights are not rounded to FP8 (GPUs)");
  p.toggle("--batch-invariant", &o.engine.batch_invariant, "the same bits for a request alone and in any batch (Hopper; CPUs always)");
  p.toggle("--enforce-eager", &o.engine.enforce_eager, "no CUDA graphs");
  p.toggle("--disable-custom-all-reduce", &o.engine.disable_custom_all_reduce, "GPUs of a host talk through NCCL alone");
  p.value("--seed", &o.engine.seed, "of sampling, for requests that bring none (0)");
  p.count("--max-model-len", &o.engine.scheduler.max_model_len, "most tokens of a request, 32k or 32K; -1 = what the KV cache holds");
  p.value("--generation-config", &o.generation_config, "auto, vllm (no defaults of the model) or a folder");
  p.value("--override-generation-config", &raw.override_generation_config, "JSON: sampling defaults");
}

void parallel_flags(FlagParser& p, ServeOptions& o, RawValues& raw) {
  p.section("Ranks and nodes");
  p.value("--tensor-parallel-size", &o.engine.parallel.tensor_parallel_size, "-tp: ranks that share each layer (1)");
  p.value("--pipeline-parallel-size", &o.engine.parallel.pipeline_parallel_size, "-pp: stages of layers (1)");
  p.value("--tensor-split", &raw.tensor_split, "shares of the tensor-parallel ranks, 2,1");
  p.value("--pipeline-layer-partition", &raw.layer_partition, "layers of each stage, 16,14");
  p.value("--nnodes", &o.launch.nnodes, "-n: nodes of the cluster; unset: 1, or as many as hold the ranks with the GPUs of this one");
  p.value("--node-rank", &o.launch.node_rank, "-r: this node's number, 0 = the head");
  p.value("--master-addr", &o.launch.master_addr, "where the head is reached by the other nodes");
  p.value("--master-port", &o.launch.master_port, "the head's control port (29500)");
  p.toggle("--headless", &o.launch.headless, "no API on this node (nodes beyond the head never have one)");
  p.value("--comm-dtype", &o.engine.comm.dtype, "auto, int8 or fp8: what crosses between nodes; auto is exact");
  p.value("--comm-transport", &o.engine.comm.transport, "tcp, or ucx (RDMA): what carries tensors between nodes");
  p.value("--tcp-streams", &o.engine.comm.tcp_streams, "connections of two ranks that share a large message (1)");
  p.value("--data-ports", &raw.data_ports, "ports on which ranks listen for each other (29501-29600)");
  p.value("--network-interface", &o.interface, "name or CIDR of the network between nodes");
  p.value("--token", &o.token.token, "the cluster token");
  p.value("--token-file", &o.token.token_file, "a file that holds the cluster token");
  p.value("--ready-timeout", &o.ready_timeout_s, "seconds to wait for other nodes (600)");
  p.value("--recovery-wait", &o.recovery_wait_s, "seconds to wait for lost ranks while requests wait (0 = end them at once)");
  p.value("--distributed-timeout-seconds", &raw.distributed_timeout, "most that a collective may be late (10)");
  p.value("--cpu-threads", &o.engine.cpu_threads, "of one rank (0 = cores of the node / its ranks)");
}

void engine_flags(FlagParser& p, ServeOptions& o, RawValues& raw) {
  CacheConfig& cache = o.engine.cache;
  SchedulerConfig& scheduler = o.engine.scheduler;
  p.section("Memory and scheduling");
  p.count("--block-size", &cache.block_size, "tokens of a KV block (16)");
  p.value("--gpu-memory-utilization", &cache.gpu_memory_utilization, "share of a GPU's memory to use (0.92)");
  p.count("--kv-cache-memory-bytes", &cache.kv_cache_memory_bytes, "KV cache of a rank (4G on CPUs; on GPUs what --gpu-memory-utilization leaves)");
  p.count("--num-gpu-blocks-override", &cache.num_blocks_override, "KV blocks of a rank, in place of what its memory holds");
  p.value("--kv-cache-dtype", &cache.kv_cache_dtype, "auto, float32, float16 (GPU), bfloat16, fp8 (GPU) or int8 (CPU)");
  p.toggle("--enable-prefix-caching", &cache.enable_prefix_caching, "reuse KV of equal prefixes (on)");
  p.toggle("--kv-cache-metrics", &cache.kv_cache_metrics, "show on /metrics how long KV blocks live and wait");
  p.value("--kv-cache-metrics-sample", &cache.kv_cache_metrics_sample, "share of the blocks that --kv-cache-metrics follows (0.01)");
  p.count("--max-num-batched-tokens", &scheduler.max_num_batched_tokens, "tokens of a step (2048; 8192 on GPUs of 70 GiB and more, 256 on CPUs)");
  p.count("--max-num-seqs", &scheduler.max_num_seqs, "requests of a step (256; 1024 on GPUs of 70 GiB and more)");
  p.toggle("--enable-chunked-prefill", &scheduler.enable_chunked_prefill, "cut long prompts over steps (on); off: a step holds --max-model-len tokens");
  p.count("--long-prefill-token-threshold", &scheduler.long_prefill_token_threshold, "most prompt tokens of one request in a step (0 = no limit)");
  p.value("--scheduling-policy", &raw.scheduling_policy, "fcfs, or priority: lower numbers first");
  p.count("--max-queue-size", &scheduler.max_queue_size, "waiting requests before 429 (4096)");
}

void log_flags(FlagParser& p, RawValues& raw) {
  p.section("Log");
  p.value("--log-format", &raw.log_format, "text or json");
  p.toggle("--debug", &raw.debug, "also show lines for developers");
  p.toggle("--disable-log-stats", &raw.disable_log_stats, "no line of throughput every 10 s");
}

void server_flags(FlagParser& p, ServeOptions& o, RawValues& raw) {
  ServerConfig& s = o.server;
  p.section("API");
  p.value("--host", &raw.host, "address of the API; unset: this machine only, all with --api-key");
  p.value("--port", &s.http.port, "of the API (8000)");
  p.value("--uds", &s.http.uds, "a Unix socket in place of host and port");
  p.list("--api-key", &s.api_keys, "keys of which a client must show one");
  p.list("--served-model-name", &o.engine.served_model_names, "names of the model in the API");
  p.value("--root-path", &s.root_path, "prefix of all routes behind a proxy");
  p.value("--allowed-origins", &raw.allowed_origins, "JSON list: origins of browsers (CORS)");
  p.value("--allowed-methods", &raw.allowed_methods, "JSON list: methods they may use (all)");
  p.value("--allowed-headers", &raw.allowed_headers, "JSON list: headers they may send (all)");
  p.toggle("--allow-credentials", &s.cors.allow_credentials, "they may send cookies and keys");
  p.value("--ssl-keyfile", &s.http.tls.key_file, "PEM file of the server's key");
  p.value("--ssl-certfile", &s.http.tls.cert_file, "PEM file of its certificate: the API is served over TLS");
  p.value("--ssl-ca-certs", &s.http.tls.ca_certs, "PEM file of who signs clients' certificates");
  p.value("--ssl-cert-reqs", &s.http.tls.cert_reqs, "client certificates: 0 = none, 1 = if there is one, 2 = required (0)");
  p.value("--ssl-ciphers", &s.http.tls.ciphers, "in OpenSSL's form");
  p.toggle("--enable-log-requests", &s.log_requests, "a line for every request");
  p.toggle("--enable-log-outputs", &s.log_outputs, "a line for every answer");
  p.value("--max-log-len", &s.max_log_len, "characters of a prompt or an answer in the log (all)");
  p.toggle("--enable-request-id-headers", &s.enable_request_id_headers, "X-Request-Id in answers");
  p.toggle("--enable-force-include-usage", &s.enable_force_include_usage, "usage in every stream");
  p.toggle("--enable-prompt-tokens-details", &s.enable_prompt_tokens_details, "cached tokens in usage");
  p.value("--chat-template", &o.chat_template, "a Jinja file, or the template itself");
  p.value("--default-chat-template-kwargs", &raw.chat_template_kwargs, "JSON: variables of the chat template");
  p.toggle("--trust-request-chat-template", &s.trust_request_chat_template, "requests may bring a template");
  p.value("--response-role", &s.response_role, "of answers (assistant)");
  p.toggle("--enable-auto-tool-choice", &s.enable_auto_tool_choice, "answers may call tools; needs --tool-call-parser");
  p.value("--tool-call-parser", &s.tool_call_parser, "the form of the model's calls: hermes or llama3_json");
  p.toggle("--return-tokens-as-token-ids", &s.return_tokens_as_token_ids, "token_id:N in log-probabilities");
  p.value("--shutdown-timeout", &o.shutdown_timeout_s, "seconds that running requests get after SIGTERM (30)");
  p.value("--request-timeout", &raw.request_timeout, "seconds of a request that states none (X-Request-Timeout); 0 = no limit");
  p.value("--max-logprobs", &s.max_logprobs, "most log-probabilities a request may ask for (20); -1 = no limit");
  p.value("--stream-interval", &s.stream_interval, "tokens of a streamed event, after the first (1)");
  p.value("--metrics-prefix", &raw.metrics_prefix, "of the families that vLLM has too, in place of vllm:; all are under tutti:");
}

std::vector<int> parse_int_list(const std::string& text, const std::string& flag) {
  std::vector<int> values;
  size_t at = 0;
  while (at < text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    values.push_back(static_cast<int>(parse_count(text.substr(at, comma - at), flag)));
    at = comma + 1;
  }
  return values;
}

// "29501-29600" or one port.
void settle_data_ports(const std::string& text, CommConfig& comm) {
  if (text.empty()) return;
  const auto port_of = [&](const std::string& part) -> int {
    const bool digits = !part.empty() && part.size() <= 5 && part.find_first_not_of("0123456789") == std::string::npos;
    return digits ? std::stoi(part) : 0;
  };
  const size_t dash = text.find('-');
  comm.port_min = port_of(text.substr(0, dash));
  comm.port_max = dash == std::string::npos ? comm.port_min : port_of(text.substr(dash + 1));
  if (comm.port_min < 1 || comm.port_max > 65535 || comm.port_min > comm.port_max) {
    throw ConfigError("--data-ports " + text + ": expected a range inside 1 to 65535, 29501-29600");
  }
}

void settle_comm(CommConfig& comm, const RawValues& raw) {
  if (comm.dtype != "auto" && comm.dtype != "int8" && comm.dtype != "fp8") {
    throw ConfigError("--comm-dtype " + comm.dtype + ": expected auto, int8 or fp8");
  }
  if (comm.transport != "tcp" && comm.transport != "ucx") {
    throw ConfigError("--comm-transport " + comm.transport + ": expected tcp or ucx");
  }
  if (comm.tcp_streams < 1 || comm.tcp_streams > 64) {
    throw ConfigError(fmt::format("--tcp-streams {}: expected 1 to 64", comm.tcp_streams));
  }
  settle_data_ports(raw.data_ports, comm);
}

void settle_device(EngineConfig& engine, const RawValues& raw) {
  if (raw.device != "auto" && raw.device != "cuda" && raw.device != "cpu") {
    throw ConfigError("--device " + raw.device + ": expected auto, cuda or cpu");
  }
  const int gpus = raw.device == "cpu" ? 0 : cuda::device_count();
  if (raw.device == "cuda" && gpus == 0) {
    throw ConfigError(cuda_kernel_table() == nullptr
                          ? "--device cuda: this program was built without CUDA (configure with -DTUTTI_CUDA=ON)"
                          : "--device cuda: no GPU is seen (is the NVIDIA driver loaded? was a container started with --gpus all? what "
                            "does CUDA_VISIBLE_DEVICES say?)");
  }
  engine.device = gpus > 0 ? "cuda" : "cpu";
  if (engine.device == "cpu") engine.cpu_level = cpu::best_kernel_table().level->name;
  // What the files say is used whether or not it is said again.
  const bool of_files = raw.quantization.empty() || raw.quantization == "gguf" || raw.quantization == "compressed-tensors";
  if (!of_files && raw.quantization != "fp8") {
    throw ConfigError("--quantization " + raw.quantization + ": expected fp8, or what the files have (gguf)");
  }
  engine.quantization = raw.quantization == "fp8" ? "fp8" : "";
  if (engine.fp8_weight_only && engine.device == "cpu") throw ConfigError("--fp8-weight-only --device cpu: FP8 weights are for GPUs; leave it out");
  if (engine.fp8_weight_only && engine.batch_invariant) {
    throw ConfigError("--batch-invariant --fp8-weight-only: products of weights that are widened first depend on the batch; leave one out");
  }
  if (engine.disable_custom_all_reduce && engine.batch_invariant && engine.device == "cuda") {
    throw ConfigError("--batch-invariant --disable-custom-all-reduce: NCCL adds in an order that depends on a message's size; leave one out");
  }
}

// A large GPU is kept busy by larger steps. As with vLLM, what is not said depends on it. A CPU computes a token as fast among 200
// others as among 2,000, and a step of 2,000 would keep everybody waiting for seconds.
void settle_step_size(ServeOptions& o, const FlagParser& p) {
  constexpr int64_t kLargeGpu = int64_t{70} << 30;
  const EngineConfig& engine = o.engine;
  SchedulerConfig& scheduler = o.engine.scheduler;
  o.step_size_given = p.given("--max-num-batched-tokens");
  if (engine.device == "cpu" && scheduler.enable_chunked_prefill && !o.step_size_given) {
    scheduler.max_num_batched_tokens = 256;
  }
  if (engine.device != "cuda" || cuda::total_memory(Device::cuda(0)) < kLargeGpu) return;
  if (!o.step_size_given) scheduler.max_num_batched_tokens = 8192;
  if (!p.given("--max-num-seqs")) scheduler.max_num_seqs = 1024;
}

// With a step of no tokens or no requests, clients would wait for ever.
void check_numbers(const ServeOptions& o) {
  constexpr double kMany = 1 << 30;
  constexpr double kBytes = 1e15;
  constexpr double kSeconds = 1e9;
  const SchedulerConfig& s = o.engine.scheduler;
  const CacheConfig& c = o.engine.cache;
  check_range("--max-num-batched-tokens", static_cast<double>(s.max_num_batched_tokens), 1, kMany);
  check_range("--max-num-seqs", static_cast<double>(s.max_num_seqs), 1, kMany);
  check_range("--long-prefill-token-threshold", static_cast<double>(s.long_prefill_token_threshold), 0, kMany);
  check_range("--max-queue-size", static_cast<double>(s.max_queue_size), 1, kMany);
  check_range("--block-size", static_cast<double>(c.block_size), 1, 1 << 16);
  check_range("--gpu-memory-utilization", c.gpu_memory_utilization, 0.01, 1);
  check_range("--kv-cache-metrics-sample", c.kv_cache_metrics_sample, 1e-6, 1);
  check_range("--kv-cache-memory-bytes", static_cast<double>(c.kv_cache_memory_bytes.value_or(1)), 1, kBytes);
  check_range("--num-gpu-blocks-override", static_cast<double>(c.num_blocks_override.value_or(1)), 1, kMany);
  check_range("--cpu-threads", o.engine.cpu_threads, 0, 4096);
  check_range("--master-port", o.launch.master_port.value_or(1), 1, 65535);
  check_range("--ready-timeout", o.ready_timeout_s, 0, kSeconds);
  check_range("--recovery-wait", o.recovery_wait_s, 0, kSeconds);
  check_range("--shutdown-timeout", o.shutdown_timeout_s, 0, kSeconds);
  check_range("--distributed-timeout-seconds", o.engine.collective_timeout_s, 0.001, kSeconds);
}

// The text of an error names what was set: the flag, or the variable that stands for it.
void settle_layout(ParallelConfig& parallel, const RawValues& raw) {
  try {
    parallel.pipeline_layer_partition = parse_int_list(raw.layer_partition, "--pipeline-layer-partition");
    parallel.validate();
  } catch (const ConfigError& e) {
    if (!raw.partition_of_variable) throw;
    throw ConfigError("VLLM_PP_LAYER_PARTITION=" + raw.layer_partition + ": " + e.what());
  }
}

void settle_model(ServeOptions& o, const RawValues& raw, const FlagParser& p) {
  if (!raw.model_flag.empty()) {
    if (!o.engine.model.empty() && o.engine.model != raw.model_flag) {
      throw ConfigError(fmt::format("two models: \"{}\" and --model {}", o.engine.model, raw.model_flag));
    }
    o.engine.model = raw.model_flag;
  }
  if (o.engine.model.empty()) throw ConfigError("which model? " + p.command() + " MODEL, a folder or a .gguf file");
  settle_device(o.engine, raw);
  if (o.engine.device == "cuda") o.launch.gpus = cuda::device_count();
  o.engine.parallel.tensor_split = parse_int_list(raw.tensor_split, "--tensor-split");
  settle_layout(o.engine.parallel, raw);
  settle_comm(o.engine.comm, raw);
  if (raw.scheduling_policy != "fcfs" && raw.scheduling_policy != "priority") {
    throw ConfigError("--scheduling-policy " + raw.scheduling_policy + ": expected fcfs or priority");
  }
  o.engine.scheduler.priority_policy = raw.scheduling_policy == "priority";
  o.override_generation_config = parse_object(raw.override_generation_config, "--override-generation-config");
  if (raw.distributed_timeout != 0) o.engine.collective_timeout_s = raw.distributed_timeout;
  check_numbers(o);
  o.log.format = parse_log_format(raw.log_format);
  o.log.debug = raw.debug;
  o.log_stats = !raw.disable_log_stats;
}

// Variables that scripts for vLLM set, where a flag of the same meaning is not given.
void read_vllm_environment(ServeOptions& o, RawValues& raw, const FlagParser& p) {
  const auto value_of = [&](const char* name, const char* flag) { return p.given(flag) ? std::string() : environment(name); };
  if (const auto value = value_of("VLLM_ENGINE_READY_TIMEOUT_S", "--ready-timeout"); !value.empty()) {
    o.ready_timeout_s = static_cast<double>(parse_count(value, "VLLM_ENGINE_READY_TIMEOUT_S"));
  }
  if (const auto value = value_of("VLLM_HOST_IP", "--network-interface"); !value.empty()) {
    o.interface = value + "/32";
    o.notes.push_back("VLLM_HOST_IP=" + value + " stands for --network-interface " + o.interface);
  }
  if (const auto value = value_of("VLLM_LOGGING_LEVEL", "--debug"); value == "DEBUG") raw.debug = true;
  if (const auto value = value_of("VLLM_PP_LAYER_PARTITION", "--pipeline-layer-partition"); !value.empty()) {
    raw.layer_partition = value;
    raw.partition_of_variable = true;
    o.notes.push_back("VLLM_PP_LAYER_PARTITION=" + value + " stands for --pipeline-layer-partition " + value);
  }
  if (const std::string value = environment("VLLM_HTTP_TIMEOUT_KEEP_ALIVE"); !value.empty()) {
    const int64_t seconds = parse_count(value, "VLLM_HTTP_TIMEOUT_KEEP_ALIVE");
    if (seconds < 1 || seconds > 86400) throw ConfigError("VLLM_HTTP_TIMEOUT_KEEP_ALIVE=" + value + ": expected 1 to 86400 seconds");
    o.server.http.idle_timeout = std::chrono::seconds(seconds);
  }
  if (value_of("VLLM_BATCH_INVARIANT", "--batch-invariant") == "1") o.engine.batch_invariant = true;
  if (const std::string value = environment("VLLM_KEEP_ALIVE_ON_ENGINE_DEATH"); value == "1") {
    o.server.keep_alive_on_engine_failure = true;
  }
}

// What other nodes that type the same command must agree on.
void note_cluster_flags(ServeOptions& o, const RawValues& raw, const FlagParser& p) {
  const auto add = [&](const char* name, const std::string& value) {
    o.effective_flags.push_back({name, value});
    if (p.given(name)) o.cluster_flags.push_back({name, value});
  };
  add("--tensor-parallel-size", std::to_string(o.engine.parallel.tensor_parallel_size));
  add("--pipeline-parallel-size", std::to_string(o.engine.parallel.pipeline_parallel_size));
  add("--tensor-split", raw.tensor_split);
  add("--pipeline-layer-partition", raw.layer_partition);
  add("--comm-dtype", o.engine.comm.dtype);
  add("--dtype", o.engine.dtype);
  add("--device", o.engine.device);
  add("--quantization", o.engine.quantization);
  add("--fp8-weight-only", o.engine.fp8_weight_only ? "true" : "false");
  add("--batch-invariant", o.engine.batch_invariant ? "true" : "false");
  add("--load-format", o.engine.load_format);
  add("--max-model-len", std::to_string(o.engine.scheduler.max_model_len));
  add("--max-num-batched-tokens", std::to_string(o.engine.scheduler.max_num_batched_tokens));
  add("--max-num-seqs", std::to_string(o.engine.scheduler.max_num_seqs));
  add("--block-size", std::to_string(o.engine.cache.block_size));
  add("--kv-cache-dtype", o.engine.cache.kv_cache_dtype);
  add("--seed", std::to_string(o.engine.seed));
  add("--nnodes", std::to_string(o.launch.nnodes.value_or(1)));
}

void bind_serve_flags(FlagParser& p, ServeOptions& o, RawValues& raw) {
  model_flags(p, o, raw);
  parallel_flags(p, o, raw);
  engine_flags(p, o, raw);
  server_flags(p, o, raw);
  log_flags(p, raw);
  p.table_flags(flag_rules());
}

}  // namespace

log::Format parse_log_format(const std::string& name) {
  if (name != "text" && name != "json") throw ConfigError("--log-format " + name + ": expected text or json");
  return name == "json" ? log::Format::kJson : log::Format::kText;
}

ServeOptions parse_serve_options(const std::vector<std::string>& arguments) {
  ServeOptions o;
  RawValues raw;
  FlagParser p("tutti serve", "Serves a language model, cut over the ranks of one or more nodes, through the OpenAI API.");
  bind_serve_flags(p, o, raw);
  o.notes = p.parse(arguments);
  read_vllm_environment(o, raw, p);
  settle_model(o, raw, p);
  settle_step_size(o, p);
  settle_server(o, raw);
  note_cluster_flags(o, raw, p);
  o.parallel_given = p.given("--tensor-parallel-size") || p.given("--pipeline-parallel-size");
  return o;
}

std::vector<std::string> serve_flag_names() {
  ServeOptions o;
  RawValues raw;
  FlagParser p("tutti serve", "");
  bind_serve_flags(p, o, raw);
  return p.known_flags();
}

ServeOptions parse_model_options(FlagParser& p, const std::vector<std::string>& arguments) {
  ServeOptions o;
  RawValues raw;
  model_flags(p, o, raw);
  parallel_flags(p, o, raw);
  engine_flags(p, o, raw);
  log_flags(p, raw);
  p.table_flags(flag_rules());
  o.notes = p.parse(arguments);
  settle_model(o, raw, p);
  settle_step_size(o, p);
  return o;
}

ServeOptions parse_generate_options(const std::vector<std::string>& arguments) {
  int64_t top_k = 0;
  int64_t max_tokens = 128;
  std::string prompt;
  bool chat = false;
  SamplingParams sampling;
  sampling.temperature = 0.0;
  FlagParser p("tutti generate", "Loads a model, completes one prompt, prints the tokens as they come and where the time went.");
  p.value("--prompt", &prompt, "the text to complete");
  p.toggle("--chat", &chat, "put the prompt into the model's chat template, as one message of a user");
  p.count("--max-tokens", &max_tokens, "most tokens to generate (128)");
  p.value("--temperature", &sampling.temperature, "0 = greedy (0)");
  p.value("--top-p", &sampling.top_p, "nucleus sampling (1)");
  p.count("--top-k", &top_k, "0 = all");
  p.value("--min-p", &sampling.min_p, "0 = off");
  p.toggle("--ignore-eos", &sampling.ignore_eos, "go on after the end token");
  ServeOptions o = parse_model_options(p, arguments);
  if (!p.given("--prompt")) throw ConfigError("which prompt? tutti generate MODEL --prompt \"...\"");
  if (max_tokens < 1) throw ConfigError(fmt::format("--max-tokens {}: expected at least 1", max_tokens));
  check_range("--temperature", sampling.temperature, 0, 1e6);
  check_range("--top-p", sampling.top_p, 1e-6, 1);
  check_range("--top-k", static_cast<double>(top_k), 0, 1 << 30);
  check_range("--min-p", sampling.min_p, 0, 1);
  o.prompt = prompt;
  o.chat = chat;
  o.sampling = sampling;
  o.sampling.max_tokens = static_cast<int32_t>(max_tokens);
  o.sampling.top_k = static_cast<int32_t>(top_k);
  o.sampling.seed = o.engine.seed;
  return o;
}

}  // namespace tutti

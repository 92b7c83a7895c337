#include "apps/flag_table.h"

#include <array>

namespace tutti {
namespace {

using enum FlagState;
using enum FlagKind;

constexpr std::string_view kNoLora = "LoRA adapters are not served: merge the adapter into the model first";
constexpr std::string_view kNoMedia = "only text is served";
constexpr std::string_view kNoOffload = "weights and KV stay on the device: use more ranks or a smaller model";
constexpr std::string_view kNoTransfer = "prefill and decode run on the same ranks";
constexpr std::string_view kNoPython = "there is no Python in the server to load it into";
constexpr std::string_view kNoReplicas =
    "one replica a head: start one `tutti serve` a replica behind a load balancer. On one host each needs its own --port and "
    "--master-port, 101 apart or more: --port 8001 --master-port 29601 for the second";
constexpr std::string_view kNoContextParallel = "sequences are not cut over ranks: use -tp or -pp";
constexpr std::string_view kOwnGraphs = "graphs are captured for the batch sizes that occur";
constexpr std::string_view kOwnReading = "ranks map the files and read only their slices";

constexpr std::array kRules = {
    // The API server.
    FlagRule{"--config", kWorks},
    FlagRule{"--model", kWorks},
    FlagRule{"--host", kWorks},
    FlagRule{"--port", kWorks},
    FlagRule{"--uds", kWorks},
    FlagRule{"--api-key", kWorks, kList},
    FlagRule{"--served-model-name", kWorks, kList},
    FlagRule{"--root-path", kWorks},
    FlagRule{"--middleware", kError, kList, "", kNoPython},
    FlagRule{"--allowed-origins", kWorks},
    FlagRule{"--allowed-methods", kWorks},
    FlagRule{"--allowed-headers", kWorks},
    FlagRule{"--allow-credentials", kWorks, kSwitch},
    FlagRule{"--ssl-keyfile", kWorks},
    FlagRule{"--ssl-certfile", kWorks},
    FlagRule{"--ssl-ca-certs", kWorks},
    FlagRule{"--ssl-cert-reqs", kWorks},
    FlagRule{"--ssl-ciphers", kWorks},
    FlagRule{"--enable-ssl-refresh", kError, kSwitch, "", "certificates are read once: restart after a renewal"},
    FlagRule{"--uvicorn-log-level", kHint, kValue, "info", "the server has no uvicorn; --log-format shapes the log"},
    FlagRule{"--disable-uvicorn-access-log", kHint, kSwitch, "on", "there is no access log"},
    FlagRule{"--disable-access-log-for-endpoints", kHint, kValue, "", "there is no access log"},
    FlagRule{"--enable-log-requests", kWorks, kSwitch},
    FlagRule{"--enable-log-outputs", kWorks, kSwitch},
    FlagRule{"--max-log-len", kWorks},
    FlagRule{"--enable-request-id-headers", kWorks, kSwitch},
    FlagRule{"--enable-force-include-usage", kWorks, kSwitch},
    FlagRule{"--enable-prompt-tokens-details", kWorks, kSwitch},
    FlagRule{"--enable-server-load-tracking", kHint, kSwitch, "on", "/load is always there"},
    FlagRule{"--chat-template", kWorks},
    FlagRule{"--chat-template-content-format", kHint, kValue, "auto", "the template decides"},
    FlagRule{"--default-chat-template-kwargs", kWorks},
    FlagRule{"--trust-request-chat-template", kWorks, kSwitch},
    FlagRule{"--response-role", kWorks},
    FlagRule{"--enable-auto-tool-choice", kWorks, kSwitch},
    FlagRule{"--tool-call-parser", kWorks},
    FlagRule{"--tool-parser-plugin", kError, kValue, "", kNoPython},
    FlagRule{"--reasoning-parser", kError, kValue, "", "reasoning is not parsed out of answers: it stays in the content"},
    FlagRule{"--return-tokens-as-token-ids", kWorks, kSwitch},
    FlagRule{"--lora-modules", kError, kList, "", kNoLora},
    FlagRule{"--headless", kWorks, kSwitch},
    FlagRule{"--api-server-count", kHint, kValue, "1", "one process serves the API"},
    FlagRule{"--grpc", kError, kSwitch, "", "the API speaks HTTP only"},
    FlagRule{"--shutdown-timeout", kWorks},
    // The model.
    FlagRule{"--tokenizer", kWorks},
    FlagRule{"--tokenizer-mode", kHint, kValue, "auto|hf|slow", "the model's files decide"},
    FlagRule{"--skip-tokenizer-init", kError, kSwitch, "", "the API needs the tokenizer"},
    FlagRule{"--trust-remote-code", kHint, kSwitch, "on", "no code of a model is ever run"},
    FlagRule{"--dtype", kWorks},
    FlagRule{"--seed", kWorks},
    FlagRule{"--max-model-len", kWorks},
    FlagRule{"--quantization", kWorks},
    FlagRule{"--enforce-eager", kWorks, kSwitch},
    FlagRule{"--max-logprobs", kWorks},
    FlagRule{"--logprobs-mode", kError, kValue, "raw_logprobs", "log-probabilities are the model's own"},
    FlagRule{"--generation-config", kWorks},
    FlagRule{"--override-generation-config", kWorks},
    FlagRule{"--enable-sleep-mode", kError, kSwitch, "", "the engine does not sleep: end it"},
    FlagRule{"--model-impl", kHint, kValue, "auto|vllm", "there is one implementation"},
    FlagRule{"--runner", kError, kValue, "auto|generate", "only generation is served"},
    FlagRule{"--convert", kError, kValue, "auto|none", "only generation is served"},
    FlagRule{"--revision", kWorks},
    FlagRule{"--tokenizer-revision", kError, kValue, "main", "give --tokenizer a folder"},
    FlagRule{"--hf-token", kError, kValue, "", "models are not fetched: give a path"},
    FlagRule{"--hf-overrides", kError, kValue, "{}", "edit config.json in a copy of the model's folder"},
    FlagRule{"--hf-config-path", kError, kValue, "", "config.json is read from the model's folder"},
    FlagRule{"--config-format", kHint, kValue, "auto|hf", "the files decide"},
    FlagRule{"--load-format", kWorks},
    FlagRule{"--download-dir", kError, kValue, "", "models are not fetched: give a path"},
    FlagRule{"--safetensors-load-strategy", kHint, kValue, "lazy", kOwnReading},
    FlagRule{"--ignore-patterns", kHint, kList, "original/**/*", kOwnReading},
    FlagRule{"--model-loader-extra-config", kHint, kValue, "{}", kOwnReading},
    // Parallel execution.
    FlagRule{"--tensor-parallel-size", kWorks},
    FlagRule{"--pipeline-parallel-size", kWorks},
    FlagRule{"--data-parallel-size", kError, kValue, "1", kNoReplicas},
    FlagRule{"--data-parallel-size-local", kError, kValue, "1", kNoReplicas},
    FlagRule{"--data-parallel-rank", kError, kValue, "0", kNoReplicas},
    FlagRule{"--data-parallel-start-rank", kError, kValue, "0", kNoReplicas},
    FlagRule{"--data-parallel-address", kError, kValue, "", kNoReplicas},
    FlagRule{"--data-parallel-rpc-port", kError, kValue, "29550", kNoReplicas},
    FlagRule{"--data-parallel-backend", kError, kValue, "mp", kNoReplicas},
    FlagRule{"--data-parallel-hybrid-lb", kError, kSwitch, "", kNoReplicas},
    FlagRule{"--data-parallel-external-lb", kError, kSwitch, "", kNoReplicas},
    FlagRule{"--enable-expert-parallel", kError, kSwitch, "", "there is no expert parallelism: use -tp or -pp"},
    FlagRule{"--all2all-backend", kHint, kValue, "allgather_reducescatter|naive", "there is no expert parallelism"},
    FlagRule{"--expert-placement-strategy", kHint, kValue, "linear", "there is no expert parallelism"},
    FlagRule{"--enable-eplb", kError, kSwitch, "", "there is no expert parallelism"},
    FlagRule{"--eplb-config", kHint, kValue, "{}", "there is no expert parallelism"},
    FlagRule{"--enable-elastic-ep", kError, kSwitch, "", "there is no expert parallelism"},
    FlagRule{"--enable-dbo", kHint, kSwitch, "", "steps overlap by one step of look-ahead"},
    FlagRule{"--decode-context-parallel-size", kError, kValue, "1", kNoContextParallel},
    FlagRule{"--prefill-context-parallel-size", kError, kValue, "1", kNoContextParallel},
    FlagRule{"--distributed-executor-backend", kHint, kValue, "mp", "ranks are processes; nodes join with `tutti worker`"},
    FlagRule{"--nnodes", kWorks},
    FlagRule{"--node-rank", kWorks},
    FlagRule{"--master-addr", kWorks},
    FlagRule{"--master-port", kWorks},
    FlagRule{"--distributed-timeout-seconds", kWorks},
    FlagRule{"--disable-custom-all-reduce", kWorks, kSwitch},
    FlagRule{"--numa-bind", kHint, kSwitch, "", "threads stay where the system puts them: use numactl"},
    FlagRule{"--max-parallel-loading-workers", kHint, kValue, "", kOwnReading},
    // Memory and scheduling.
    FlagRule{"--block-size", kWorks},
    FlagRule{"--gpu-memory-utilization", kWorks},
    FlagRule{"--kv-cache-memory-bytes", kWorks},
    FlagRule{"--num-gpu-blocks-override", kWorks},
    FlagRule{"--kv-cache-dtype", kWorks},
    FlagRule{"--calculate-kv-scales", kError, kSwitch, "", "KV is kept without scales"},
    FlagRule{"--enable-prefix-caching", kWorks, kSwitch},
    FlagRule{"--kv-cache-metrics", kWorks, kSwitch},
    FlagRule{"--kv-cache-metrics-sample", kWorks},
    FlagRule{"--prefix-caching-hash-algo", kHint, kValue, "sha256", "prefixes are hashed with SHA-256"},
    FlagRule{"--cpu-offload-gb", kError, kValue, "0|0.0", kNoOffload},
    FlagRule{"--kv-offloading-size", kError, kValue, "", kNoOffload},
    FlagRule{"--kv-offloading-backend", kHint, kValue, "native", kNoOffload},
    FlagRule{"--max-num-batched-tokens", kWorks},
    FlagRule{"--max-num-seqs", kWorks},
    FlagRule{"--enable-chunked-prefill", kWorks, kSwitch},
    FlagRule{"--max-num-partial-prefills", kHint, kValue, "1", "--long-prefill-token-threshold shares a step's tokens"},
    FlagRule{"--max-long-partial-prefills", kHint, kValue, "1", "--long-prefill-token-threshold shares a step's tokens"},
    FlagRule{"--long-prefill-token-threshold", kWorks},
    FlagRule{"--scheduling-policy", kWorks},
    FlagRule{"--async-scheduling", kHint, kSwitch, "on", "the scheduler is always a step ahead"},
    FlagRule{"--stream-interval", kWorks},
    FlagRule{"--cudagraph-capture-sizes", kHint, kList, "", kOwnGraphs},
    FlagRule{"--max-cudagraph-capture-size", kHint, kValue, "", kOwnGraphs},
    FlagRule{"--compilation-config", kHint, kValue, "{}", kOwnGraphs},
    FlagRule{"--optimization-level", kHint, kValue, "2", kOwnGraphs},
    FlagRule{"--performance-mode", kHint, kValue, "balanced", "kernels are chosen by measurement"},
    FlagRule{"--speculative-config", kError, kValue, "", "there is no speculative decoding"},
    FlagRule{"--kv-transfer-config", kError, kValue, "", kNoTransfer},
    FlagRule{"--kv-events-config", kError, kValue, "", kNoTransfer},
    // Adapters, media, observation.
    FlagRule{"--enable-lora", kError, kSwitch, "", kNoLora},
    FlagRule{"--max-loras", kHint, kValue, "1", kNoLora},
    FlagRule{"--max-lora-rank", kHint, kValue, "16", kNoLora},
    FlagRule{"--max-cpu-loras", kHint, kValue, "", kNoLora},
    FlagRule{"--lora-dtype", kHint, kValue, "auto", kNoLora},
    FlagRule{"--fully-sharded-loras", kHint, kSwitch, "", kNoLora},
    FlagRule{"--limit-mm-per-prompt", kHint, kValue, "{}", kNoMedia},
    FlagRule{"--mm-processor-kwargs", kHint, kValue, "{}", kNoMedia},
    FlagRule{"--allowed-local-media-path", kError, kValue, "", kNoMedia},
    FlagRule{"--otlp-traces-endpoint", kError, kValue, "", "traces are not exported: scrape /metrics"},
    FlagRule{"--show-hidden-metrics-for-version", kHint, kValue, "", "no metric is hidden"},
    FlagRule{"--disable-log-stats", kWorks, kSwitch},
    FlagRule{"--attention-backend", kHint, kValue, "auto", "the device decides"},
};

}  // namespace

std::span<const FlagRule> flag_rules() { return kRules; }

}  // namespace tutti

// `tutti bench ...`: picks the benchmark.
#include <cstdio>

#include "apps/argv.h"
#include "apps/bench_commands.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/nearest_name.h"

namespace tutti {
namespace {

struct Benchmark {
  const char* name;
  int (*run)(const Arguments&);
  const char* summary;
};

constexpr Benchmark kBenchmarks[] = {
    {"serve", run_bench_serve, "load on a running server: throughput, TTFT, TPOT"},
    {"latency", run_bench_latency, "time of one batch on a model, without a server"},
    {"throughput", run_bench_throughput, "many requests at once on a model, without a server"},
    {"comm", run_bench_comm, "collectives between ranks: shared memory, TCP, GPUs"},
};

// Those of vLLM that are not here, and what to do instead.
constexpr std::pair<const char*, const char*> kElsewhere[] = {
    {"startup", "`tutti serve` prints the time of each step of its start"},
    {"sweep", "run `tutti bench serve --save-result` in a loop over what is to vary"},
    {"mm-processor", "only text is served"},
};

}  // namespace

int run_bench(const Arguments& arguments) {
  const std::string name = arguments.empty() ? "--help" : arguments[0];
  if (name == "--help" || name == "-h") {
    std::printf("usage: tutti bench BENCHMARK ...\n\n");
    for (const Benchmark& benchmark : kBenchmarks) std::printf("  %-10s %s\n", benchmark.name, benchmark.summary);
    std::printf("\ntutti bench BENCHMARK --help lists its flags\n");
    return static_cast<int>(arguments.empty() ? ExitCode::kConfig : ExitCode::kOk);
  }
  std::vector<std::string> names;
  for (const Benchmark& benchmark : kBenchmarks) {
    if (name == benchmark.name) return benchmark.run({arguments.begin() + 1, arguments.end()});
    names.emplace_back(benchmark.name);
  }
  for (const auto& [known, instead] : kElsewhere) {
    if (name == known) throw ConfigError("there is no `tutti bench " + name + "`: " + instead);
  }
  const std::string near = likely_name(name, names);
  throw ConfigError("unknown benchmark \"" + name + "\"" + (near.empty() ? ": tutti bench --help lists all" : "; near: " + near));
}

}  // namespace tutti

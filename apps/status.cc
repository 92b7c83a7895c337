// `tutti status`: what a cluster is doing, asked from its head.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "apps/commands.h"
#include "apps/flag_parser.h"
#include "apps/time_summary.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cluster/control_client.h"
#include "cluster/launcher.h"
#include "cluster/membership.h"
#include "cluster/network.h"
#include "cluster/units.h"

namespace tutti {
namespace {

constexpr size_t kRanksShown = 8;

double number(const Json& report, const char* key) {
  return report.contains(key) && report[key].is_number() ? report[key].get<double>() : 0.0;
}

std::string text(const Json& report, const char* key) {
  return report.contains(key) && report[key].is_string() ? report[key].get<std::string>() : "";
}

int64_t whole(const Json& report, const char* key) { return static_cast<int64_t>(number(report, key)); }

// "3 d 04 h", "2 h 05 min", "4 min 10 s"
std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds);
  if (s >= 86400) return fmt::format("{} d {:02} h", s / 86400, s % 86400 / 3600);
  if (s >= 3600) return fmt::format("{} h {:02} min", s / 3600, s % 3600 / 60);
  if (s >= 60) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} s", s);
}

void print_engine(const Json& r) {
  std::printf("traffic    %s\n",
              fmt::format("{} running, {} waiting   {} tokens in, {} out since start", whole(r, "running"), whole(r, "waiting"),
                          group_digits(whole(r, "prompt_tokens")), group_digits(whole(r, "generation_tokens")))
                  .c_str());
  const StepTimes times{.compute = number(r, "compute_seconds"), .comm = number(r, "comm_seconds"),
                        .pp_comm = number(r, "pp_comm_seconds"), .host = number(r, "host_seconds"),
                        .step = number(r, "step_seconds"), .bubble = number(r, "bubble_seconds"),
                        .comm_bytes = whole(r, "comm_bytes"), .pp_comm_bytes = whole(r, "pp_comm_bytes"),
                        .slowest_rank = static_cast<int>(whole(r, "slowest_rank"))};
  const double sum = times.compute + times.comm + times.host;
  if (const double steps = number(r, "steps"); steps > 0 && sum > 0) {
    std::printf("step       %s\n", fmt::format("{:.1f} ms: {}{}", times.step / steps * 1e3, describe_shares(times, sum),
                                              describe_traffic(times)).c_str());
  }
  const double blocks = number(r, "kv_blocks_total");
  const double queries = number(r, "prefix_queries");
  std::printf("KV         %s\n",
              fmt::format("{:.0f}% of {} blocks   prefix hits {:.0f}%   {} preemptions",
                          blocks > 0 ? number(r, "kv_blocks_used") / blocks * 100 : 0.0, group_digits(whole(r, "kv_blocks_total")),
                          queries > 0 ? number(r, "prefix_hits") / queries * 100 : 0.0, whole(r, "preemptions"))
                  .c_str());
}

void print_nodes(const Json& nodes) {
  size_t name_width = 4;
  size_t address_width = 7;
  for (const Json& node : nodes) {
    name_width = std::max(name_width, text(node, "name").size());
    address_width = std::max(address_width, text(node, "address").size());
  }
  std::printf("\n%s\n", fmt::format("{:{}}  {:{}}  {:8}  {:8}  {:>5}  {:>10}  {}", "node", name_width, "address", address_width,
                                    "state", "ranks", "cores", "memory", "processor")
                            .c_str());
  for (const Json& node : nodes) {
    std::printf("%s\n", fmt::format("{:{}}  {:{}}  {:8}  {:8}  {:>5}  {:>10}  {}", text(node, "name"), name_width,
                                    text(node, "address"), address_width, text(node, "state"),
                                    describe_ranks(node["ranks"].get<std::vector<int>>()), whole(node, "cores"),
                                    fmt::format("{:.1f} GiB", number(node, "memory_gib")), text(node, "processor"))
                            .c_str());
  }
}

// A head that does not serve yet does not say.
std::string state_of(const Json& report) { return report.contains("state") ? text(report, "state") : "joining"; }

void print_report(const Json& r, bool all_ranks) {
  const std::string since = state_of(r) == "ready" ? " for " + duration(number(r, "uptime_s")) : "";
  std::printf("cluster    %s   %s%s   tutti %s   model %s   layout %s\n", text(r, "cluster").substr(0, 4).c_str(), state_of(r).c_str(),
              since.c_str(), text(r, "build").c_str(), text(r, "model").c_str(), text(r, "layout").c_str());
  if (r.contains("steps")) print_engine(r);
  if (r.contains("nodes")) print_nodes(r["nodes"]);
  if (!r.contains("ranks") || (r["ranks"].size() > kRanksShown && !all_ranks)) return;
  std::printf("\n");
  size_t node_width = 0;
  size_t pid_width = 0;
  for (const Json& rank : r["ranks"]) {
    node_width = std::max(node_width, text(rank, "node").size());
    pid_width = std::max(pid_width, std::to_string(whole(rank, "pid")).size());
  }
  for (const Json& rank : r["ranks"]) {
    std::string step;
    if (const double steps = number(rank, "steps"); steps > 0) {
      step = fmt::format("  step {:.1f} ms, {:.1f} ms of it in collectives", number(rank, "total_seconds") / steps * 1e3,
                         number(rank, "comm_seconds") / steps * 1e3);
    }
    std::printf("%s\n", fmt::format("rank {:<3} {:{}}  pid {:<{}}{}", whole(rank, "rank"), text(rank, "node"), node_width, whole(rank, "pid"),
                                    pid_width, step).c_str());
  }
}

}  // namespace

int run_status(const Arguments& arguments) {
  std::string address = "127.0.0.1";
  TokenFlags token_flags;
  bool json = false;
  bool all_ranks = false;
  FlagParser p("tutti status", "Prints what a cluster is doing.");
  p.value("--address", &address, "of the head, HOST or HOST:PORT (127.0.0.1:29500)");
  p.value("--token", &token_flags.token, "the cluster token");
  p.value("--token-file", &token_flags.token_file, "a file that holds the cluster token");
  p.toggle("--ranks", &all_ranks, "a line for every rank, however many");
  p.toggle("--json", &json, "the report as JSON");
  p.parse(arguments);
  log::setup({});
  const auto [host, port] = split_address(address, kDefaultControlPort);
  const auto token = worker_token(token_flags, host);
  if (!token) throw ConfigError("no cluster token for " + host + ": --token, --token-file or TUTTI_CLUSTER_TOKEN gives it");
  const TlsIdentity identity = issue_identity(*token);
  const Deadline deadline = Deadline::after(std::chrono::seconds(5));
  const Probe probe = probe_head(host, port, identity, deadline);
  if (probe.result == ProbeResult::kWrongToken) {
    throw JoinError(fmt::format("refused by {}: wrong token, the cluster token differs. `tutti token` on the head prints the right one", host));
  }
  if (probe.result != ProbeResult::kOk) {
    throw JoinError(fmt::format("no head at {}:{} ({}): `tutti serve` starts one, --address HOST:PORT names another", host, port, probe.detail));
  }
  const std::string text = fetch_status(host, port, identity, deadline);
  const Json report = parse_json(text, "the head's report");
  if (json) {
    std::printf("%s\n", text.c_str());
  } else {
    print_report(report, all_ranks);
  }
  return static_cast<int>(state_of(report) == "ready" ? ExitCode::kOk : ExitCode::kFindings);
}

}  // namespace tutti

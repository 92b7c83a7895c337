#include "base/cpu_cores.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>

namespace tutti {
namespace {

std::string line_of(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

bool contains(const std::vector<int>& values, int value) { return std::find(values.begin(), values.end(), value) != values.end(); }

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    int first = 0;
    const char* end = part.data() + part.size();
    auto [next, error] = std::from_chars(part.data(), end, first);
    if (error != std::errc() || first < 0) continue;
    int last = first;
    if (next != end && *next == '-' && std::from_chars(next + 1, end, last).ec != std::errc()) continue;
    if (last >= CPU_SETSIZE) continue;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> usable_processors_by_node() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {};
  const std::string system = "/sys/devices/system/";
  std::vector<std::vector<int>> nodes;
  for (int node : parse_cpu_list(line_of(system + "node/online"))) {
    nodes.push_back(parse_cpu_list(line_of(system + "node/node" + std::to_string(node) + "/cpulist")));
  }
  std::vector<std::tuple<size_t, size_t, int>> order;  // node, thread of its core, processor
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const auto& cpus) { return contains(cpus, cpu); });
    const auto siblings = parse_cpu_list(line_of(system + "cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list"));
    const auto thread = std::find(siblings.begin(), siblings.end(), cpu) - siblings.begin();
    order.emplace_back(node - nodes.begin(), siblings.empty() ? 0 : static_cast<size_t>(thread), cpu);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> cpus;
  std::transform(order.begin(), order.end(), std::back_inserter(cpus), [](const auto& entry) { return std::get<int>(entry); });
  return cpus;
}

void pin_thread(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  (void)::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

std::vector<int> processors_of_group(int index, int threads) {
  const std::vector<int> all = usable_processors_by_node();
  if (index < 0 || threads < 1 || static_cast<size_t>(index + 1) * static_cast<size_t>(threads) > all.size()) return {};
  return {all.begin() + index * threads, all.begin() + (index + 1) * threads};
}

}  // namespace tutti

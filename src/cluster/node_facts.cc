#include "cluster/node_facts.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "protocol/wire.h"

namespace tutti {
namespace {

constexpr const char* kVersion = TUTTI_VERSION;

// The GNU build id of the main program, as hex; "" when it was linked without one.
int find_build_id(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const char* end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* name = at + sizeof note;
      const auto* id = reinterpret_cast<const unsigned char*>(name + (note.n_namesz + 3) / 4 * 4);
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        for (unsigned b = 0; b < note.n_descsz; ++b) static_cast<std::string*>(out)->append(fmt::format("{:02x}", id[b]));
        return 1;
      }
      at = reinterpret_cast<const char*>(id) + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;  // the main program comes first; the libraries do not matter
}

std::string cpu_info(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// The instruction sets that decide which kernels run, hence which bits come out.
std::string processor_features() {
  constexpr const char* kChosen[] = {"avx2",        "fma",          "f16c",        "avx512f",  "avx512bw",
                                     "avx512_vnni", "avx512_bf16",  "avx512_fp16", "avx_vnni", "amx_int8",
                                     "amx_bf16",    "asimd",        "asimddp",     "bf16",     "i8mm"};
  std::istringstream flags(cpu_info("flags") + " " + cpu_info("Features"));
  const std::vector<std::string> have{std::istream_iterator<std::string>(flags), {}};
  std::string text;
  for (const char* feature : kChosen) {
    if (std::find(have.begin(), have.end(), feature) != have.end()) text += (text.empty() ? "" : " ") + std::string(feature);
  }
  return text.empty() ? "baseline" : text;
}

// A container or a network namespace has addresses of its own.
std::string machine_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char network[64] = "";
  const ssize_t length = ::readlink("/proc/self/ns/net", network, sizeof network);
  return boot + " " + std::string(network, static_cast<size_t>(std::max<ssize_t>(length, 0)));
}

double memory_gib() {
  double bytes = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  double max = 0;
  if (limit >> max && max > 0) bytes = std::min(bytes, max);
  return bytes / (1 << 30);
}

}  // namespace

std::string build_id() {
  std::string id;
  ::dl_iterate_phdr(find_build_id, &id);
  return fmt::format("{} ({})", kVersion, id.empty() ? "no build id" : id.substr(0, 7));
}

std::vector<Fact> comparable_facts() {
  return {{"build", build_id()}, {"protocol", std::to_string(wire::kVersion)}, {"processor", processor_features()}};
}

NodeSummary summarize_node() {
  NodeSummary summary;
  char name[256] = "node";
  ::gethostname(name, sizeof name - 1);
  summary.name = std::string(name).substr(0, std::string(name).find('.'));
  summary.processor = cpu_info("model name");
  cpu_set_t set;
  CPU_ZERO(&set);
  summary.cores = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                                : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  summary.memory_gib = memory_gib();
  summary.machine = machine_id();
  return summary;
}

std::vector<std::string> difference_table(const std::string& left_name, const std::vector<Fact>& left,
                                          const std::string& right_name, const std::vector<Fact>& right) {
  struct Row {
    std::string name, left, right;
  };
  std::vector<Row> rows;
  for (const Fact& fact : left) rows.push_back({fact.name, fact.value, "none"});
  for (const Fact& fact : right) {
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == fact.name; });
    if (same == rows.end()) {
      rows.push_back({fact.name, "none", fact.value});
    } else {
      same->right = fact.value;
    }
  }
  std::erase_if(rows, [](const Row& row) { return row.left == row.right; });
  if (rows.empty()) return {};
  size_t name_width = 14;
  size_t left_width = left_name.size();
  for (const Row& row : rows) {
    name_width = std::max(name_width, row.name.size());
    left_width = std::max(left_width, row.left.size());
  }
  std::vector<std::string> lines{fmt::format("{:{}} {:{}}  {}", "", name_width, left_name, left_width, right_name)};
  for (const Row& row : rows) {
    lines.push_back(fmt::format("{:{}} {:{}}  {}", row.name, name_width, row.left, left_width, row.right));
  }
  return lines;
}

}  // namespace tutti

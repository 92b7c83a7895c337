#include "server/process_stats.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "base/log.h"

namespace tutti {

std::string process_stats_text() {
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  double virtual_pages = 0;
  double resident_pages = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double cpu = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  std::error_code ec;
  std::filesystem::directory_iterator fds("/proc/self/fd", ec);
  const auto num_fds = ec ? 0 : std::distance(begin(fds), end(fds));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);

  std::string out;
  const auto add = [&out](const char* name, const char* type, const char* help, double value) {
    out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n{0} {3}\n", name, type, help, value);
  };
  add("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", virtual_pages * page);
  add("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident_pages * page);
  add("process_start_time_seconds", "gauge", "Start time of the process since the epoch in seconds.",
      static_cast<double>(std::time(nullptr)) - log::seconds_since_start());
  add("process_cpu_seconds_total", "counter", "User and system time spent in seconds.", cpu);
  add("process_open_fds", "gauge", "Open file descriptors.", static_cast<double>(num_fds));
  add("process_max_fds", "gauge", "Limit of open file descriptors.", static_cast<double>(limit.rlim_cur));
  return out;
}

}  // namespace tutti

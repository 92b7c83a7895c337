#include "apps/time_summary.h"

#include <fmt/format.h>

#include "cluster/units.h"

namespace tutti {
namespace {

std::string share(double part, double whole) { return fmt::format("{:.0f}%", whole > 0 ? part / whole * 100 : 0.0); }

}  // namespace

std::string describe_shares(const StepTimes& t, double whole) {
  const std::string stages = t.pp_comm > 0 ? fmt::format(" ({} between stages)", share(t.pp_comm, whole)) : "";
  return fmt::format("compute {}, communication {}{}, scheduling {}", share(t.compute, whole), share(t.comm, whole), stages,
                     share(t.host, whole));
}

std::string describe_traffic(const StepTimes& t) {
  if (t.comm_bytes == 0) return "";
  std::string text = fmt::format("; {} between ranks", format_bytes(static_cast<double>(t.comm_bytes)));
  if (t.pp_comm_bytes > 0) {
    text += fmt::format(" ({} between stages), bubble {}", format_bytes(static_cast<double>(t.pp_comm_bytes)), share(t.bubble, t.step));
  }
  if (t.slowest_rank >= 0) text += fmt::format(", slowest: rank {}", t.slowest_rank);
  return text;
}

}  // namespace tutti

#include "apps/start_phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tutti {
namespace {

struct Ended {
  std::string phase;
  double at = 0;  // seconds
};

std::vector<Ended> phases_of(const Json& report) {
  std::vector<Ended> all;
  if (!report.is_object() || !report.contains("phases")) return all;
  for (const Json& entry : report["phases"]) all.push_back({entry.at(0).get<std::string>(), entry.at(1).get<double>()});
  return all;
}

std::string name_of(size_t rank, const std::vector<std::string>& places) { return fmt::format("rank {}, {}", rank, places[rank]); }

// What ranks do after a phase; some phases are of GPUs only.
std::string next_phase(const std::string& ended) {
  static const std::map<std::string, std::string> kNext = {{"process", "connect"}, {"connect", "device"}, {"device", "links or weights"},
                                                           {"links", "weights"},   {"weights", "kernels or cache"}, {"kernels", "cache"}};
  const auto found = kNext.find(ended);
  return found == kNext.end() ? "the end of \"" + ended + "\"" : found->second;
}

}  // namespace

std::string awaited_rank(const std::vector<Json>& reports, const std::vector<std::string>& places) {
  std::vector<std::vector<Ended>> all;
  for (const Json& report : reports) all.push_back(phases_of(report));
  const auto shorter = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const size_t least = std::min_element(all.begin(), all.end(), shorter)->size();
  const auto furthest = std::max_element(all.begin(), all.end(), shorter);
  const auto behind = [&](const auto& phases) { return phases.size() == least; };
  const auto slowest = static_cast<size_t>(std::find_if(all.begin(), all.end(), behind) - all.begin());
  const auto done = all.size() - static_cast<size_t>(std::count_if(all.begin(), all.end(), behind));
  if (done == 0) {
    if (least == 0) return "waiting for the processes of all ranks";
    return next_phase(furthest->back().phase) + ": all ranks are at it";
  }
  return fmt::format("{}: waiting for {} ({} of {} ranks are done)", (*furthest)[least].phase, name_of(slowest, places), done,
                     all.size());
}

std::string slowest_ranks(const std::vector<Json>& reports, const std::vector<std::string>& places) {
  std::vector<std::vector<Ended>> all;
  for (const Json& report : reports) all.push_back(phases_of(report));
  std::string text;
  double before = 0;
  for (size_t i = 0;; ++i) {
    if (std::any_of(all.begin(), all.end(), [&](const auto& phases) { return phases.size() <= i; })) return text;
    const auto last = std::max_element(all.begin(), all.end(), [&](const auto& a, const auto& b) { return a[i].at < b[i].at; });
    const Ended& ended = (*last)[i];
    text += fmt::format("{}{} {:.1f} s ({})", text.empty() ? "" : ", ", ended.phase, std::max(0.0, ended.at - before),
                        name_of(static_cast<size_t>(last - all.begin()), places));
    before = ended.at;
  }
}

}  // namespace tutti

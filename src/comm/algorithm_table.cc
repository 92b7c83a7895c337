#include "comm/algorithm_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/deadline.h"
#include "comm/transport.h"

namespace tutti {
namespace {

constexpr size_t kSmallestTrial = 1024;
constexpr int kRepeats = 5;
constexpr double kClearly = 0.98;  // of the time of a way that is otherwise preferred

const char* name_of(SumWay way) {
  switch (way) {
    case SumWay::kOneShot:
      return "one-shot";
    case SumWay::kOneShotStreamed:
      return "one-shot streamed";
    case SumWay::kTwoShot:
      return "two-shot";
    case SumWay::kLowLatency:
      return "low-latency";
    case SumWay::kNccl:
      return "NCCL";
  }
  return "?";
}

double seconds_of_one(const SumTrial& trial, SumWay way, size_t bytes) {
  if (trial.time) return trial.time(way, bytes);
  const auto start = Clock::now();
  trial.run(way, bytes);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double seconds_of(const SumTrial& trial, SumWay way, size_t bytes) {
  (void)seconds_of_one(trial, way, bytes);  // the first finds cold caches and untouched pages
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) best = std::min(best, seconds_of_one(trial, way, bytes));
  return best;
}

}  // namespace

AlgorithmTable::AlgorithmTable(size_t one_shot_bytes) {
  ways_.fill(SumWay::kOneShot);
  set_from(one_shot_bytes, SumWay::kTwoShot);
}

void AlgorithmTable::set_from(size_t bytes, SumWay way) {
  std::fill(ways_.begin() + std::bit_width(bytes), ways_.end(), way);
}

std::string AlgorithmTable::text() const {
  std::string text;
  for (size_t i = 0; i < ways_.size(); ++i) {
    if (i > 0 && ways_[i] == ways_[i - 1]) continue;
    const char* way = name_of(ways_[i]);
    text +=
        i == 0 ? std::string(way) : fmt::format(", {} from {} bytes", way, size_t{1} << (i - 1));
  }
  return text;
}

void measure_algorithms(AlgorithmTable& table, const SumTrial& trial, size_t largest_bytes,
                        std::chrono::nanoseconds budget) {
  const auto start = Clock::now();
  for (size_t bytes = kSmallestTrial; bytes <= largest_bytes; bytes *= trial.growth) {
    SumWay best = trial.ways[0];
    double best_seconds = std::numeric_limits<double>::max();
    for (const SumWay way : trial.ways) {
      const double seconds = trial.slowest(seconds_of(trial, way, bytes));
      if (seconds >= kClearly * best_seconds) continue;
      best = way;
      best_seconds = seconds;
    }
    table.set_from(bytes, best);
    const double spent = trial.slowest(std::chrono::duration<double>(Clock::now() - start).count());
    if (spent > std::chrono::duration<double>(budget).count())
      return table.set_from(trial.growth * bytes, trial.ways.back());
  }
}

double slowest_of(Transport& transport, const Call& call, int size, double seconds) {
  std::vector<double> all(static_cast<size_t>(size));
  transport.all_gather(call, &seconds, all.data(), sizeof seconds);
  return *std::max_element(all.begin(), all.end());
}

}  // namespace tutti

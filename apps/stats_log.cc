#include "apps/stats_log.h"

#include <fmt/format.h>

#include "base/log.h"

namespace tutti {
namespace {

constexpr auto kInterval = std::chrono::seconds(10);

double percent(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void say(const EngineStats& before, const EngineStats& now) {
  const double seconds = std::chrono::duration<double>(kInterval).count();
  log::fact("stats",
            "Avg prompt throughput: {:.1f} tokens/s, Avg generation throughput: {:.1f} tokens/s, Running: {} reqs, "
            "Waiting: {} reqs, GPU KV cache usage: {:.1f}%, Prefix cache hit rate: {:.1f}%",
            static_cast<double>(now.prompt_tokens - before.prompt_tokens) / seconds,
            static_cast<double>(now.generation_tokens - before.generation_tokens) / seconds, now.num_running,
            now.num_waiting, percent(now.kv_blocks_used, now.kv_blocks_total),
            percent(now.prefix_cache_hits, now.prefix_cache_queries));
}

}  // namespace

StatsLog::StatsLog(const AsyncEngine& engine) : engine_(engine), thread_([this] { run(); }) {}

StatsLog::~StatsLog() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void StatsLog::run() {
  EngineStats before = engine_.stats();
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, kInterval, [this] { return stop_; })) {
    const EngineStats now = engine_.stats();
    if (now.steps != before.steps) say(before, now);
    before = now;
  }
}

}  // namespace tutti

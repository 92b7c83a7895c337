#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>

#include "base/deadline.h"
#include "base/json.h"

namespace tutti::log {
namespace {

constexpr size_t kMaxColumns = 110;
constexpr size_t kTextColumn = 19;  // of a line on a terminal: time and stage word stand before it
constexpr double kProgressInterval = 9.0;  // seconds, where lines cannot be redrawn

struct State {
  std::mutex mutex;
  Options options;
  std::shared_ptr<spdlog::logger> logger;
  bool terminal = false;
  bool time_of_day = false;
  bool progress_open = false;
  double last_progress = -kProgressInterval;
  Clock::time_point start = Clock::now();
};

// The log is the one object that every thread shares by nature; it holds no program state.
State& state() {
  static State s;
  return s;
}

std::string iso_time(const char* format) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  char buffer[64];
  std::strftime(buffer, sizeof buffer, format, &parts);
  return buffer;
}

std::string stamp(const State& s) {
  if (!s.terminal) return iso_time("%Y-%m-%dT%H:%M:%S%z");
  if (s.time_of_day) return iso_time("%H:%M:%S");
  return fmt::format("{:5.1f} s ", std::chrono::duration<double>(Clock::now() - s.start).count());
}

void emit(State& s, const std::string& text) {
  if (s.logger == nullptr) {
    s.logger = std::make_shared<spdlog::logger>("tutti", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    s.logger->set_pattern("%v");
    s.logger->set_level(spdlog::level::trace);
    s.logger->flush_on(spdlog::level::trace);
  }
  s.logger->info(text);
}

void close_progress(State& s) {
  if (!s.progress_open) return;
  std::fputs("\r\033[K", stderr);
  s.progress_open = false;
}

std::string text_line(const State& s, std::string_view stage, std::string_view text) {
  const std::string prefix = s.options.prefix.empty() ? "" : s.options.prefix + ": ";
  return fmt::format("{} {:<9} {}{}", stamp(s), stage, prefix, text);
}

void write(State& s, std::string_view stage, std::string_view text) {
  close_progress(s);
  if (s.options.format == Format::kJson) {
    Json object = {{"time", iso_time("%Y-%m-%dT%H:%M:%S%z")},
                   {"seconds", std::chrono::duration<double>(Clock::now() - s.start).count()},
                   {"stage", std::string(stage)},
                   {"text", std::string(text)}};
    if (!s.options.prefix.empty()) object["rank"] = s.options.prefix;
    emit(s, dump_json(object));
    return;
  }
  const std::string line = text_line(s, stage, text);
  emit(s, s.terminal ? wrap(line, kMaxColumns, kTextColumn) : line);
}

}  // namespace

std::string wrap(std::string_view line, size_t columns, size_t indent) {
  std::string out;
  size_t room = columns;
  size_t least = indent;  // no break before the text of the first line
  while (line.size() > room) {
    size_t space = line.rfind(' ', room);
    if (space == std::string_view::npos || space < least) space = line.find(' ', room);  // a long word stays whole
    if (space == std::string_view::npos) break;
    out.append(line.substr(0, space)).append("\n").append(indent, ' ');
    line.remove_prefix(space + 1);
    room = columns - indent;
    least = 1;
  }
  return out.append(line);
}

void setup(const Options& options) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.options = options;
  s.terminal = options.format == Format::kText && ::isatty(STDERR_FILENO) == 1;
}

void use_time_of_day() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.time_of_day = true;
}

double seconds_since_start() {
  return std::chrono::duration<double>(Clock::now() - state().start).count();
}

void line(std::string_view stage, std::string_view text) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  write(s, stage, text);
}

void continuation(std::string_view text) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (s.options.format == Format::kJson || !s.terminal) {
    write(s, "", text);
    return;
  }
  close_progress(s);
  emit(s, std::string(kTextColumn, ' ').append(text));
}

void progress(std::string_view stage, std::string_view text) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  const double now = std::chrono::duration<double>(Clock::now() - s.start).count();
  if (!s.terminal) {
    if (now - s.last_progress < kProgressInterval) return;
    s.last_progress = now;
    write(s, stage, text);
    return;
  }
  std::string drawn = text_line(s, stage, text);
  if (drawn.size() > kMaxColumns) drawn.resize(kMaxColumns);
  std::fprintf(stderr, "\r%s\033[K", drawn.c_str());
  std::fflush(stderr);
  s.progress_open = true;
}

void debug(std::string_view text) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (s.options.debug) write(s, "debug", text);
}

}  // namespace tutti::log

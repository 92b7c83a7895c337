// What people see while the program runs. A line is: seconds since start, one stage word, one fact. `note`, `warning`
// and `error` stand in the place of the stage word. Thread-safe.
//
//    0.1 s  model     SmolLM2-135M: Q4_1, 1 file, 98.9 MB
//
// On a terminal a progress line is redrawn in place; elsewhere lines begin with date and time (ISO 8601) and progress
// appears every 9 s. With --log-format json every line is one JSON object.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace tutti::log {

enum class Format { kText, kJson };

struct Options {
  Format format = Format::kText;
  std::string prefix;     // of a rank's process: "rank 3, node2 cpu"; empty on the head
  bool debug = false;     // also show debug() lines
};

// Call once, before threads start. Lines go to stderr.
void setup(const Options& options);

// From now on lines begin with the time of day (after the first token; see the screens in docs).
void use_time_of_day();

double seconds_since_start();

void line(std::string_view stage, std::string_view text);
// A further line of the fact above; never broken, it may be a command.
void continuation(std::string_view text);
void progress(std::string_view stage, std::string_view text);    // replaced by the next line on a terminal
void debug(std::string_view text);

// `line` broken at spaces into lines of at most `columns`, the later ones indented. What line() does on a terminal; elsewhere a
// line stays whole, for grep.
std::string wrap(std::string_view line, size_t columns, size_t indent);

template <typename... Args>
void fact(std::string_view stage, fmt::format_string<Args...> format, Args&&... args) {
  line(stage, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void note(fmt::format_string<Args...> format, Args&&... args) {
  line("note", fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  line("warning", fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  line("error", fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tutti::log

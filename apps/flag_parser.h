// A command line parser over CLI11 (kept out of this header: it is heavy) with the habits of this program: the last value
// wins, --no-x, unknown flags suggest the nearest, hints and refusals of the flag table, --config FILE.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/flag_table.h"

namespace tutti {

class FlagParser {
 public:
  // `command` as typed, "tutti serve"; `summary` for --help.
  FlagParser(std::string command, std::string summary);
  ~FlagParser();

  // Binds `name` to a variable, which keeps its value when the flag is not given.
  void value(const std::string& name, std::string* target, const std::string& help);
  void value(const std::string& name, int* target, const std::string& help);
  void value(const std::string& name, int64_t* target, const std::string& help);
  void value(const std::string& name, uint64_t* target, const std::string& help);
  void value(const std::string& name, double* target, const std::string& help);
  void value(const std::string& name, std::optional<int>* target, const std::string& help);
  // "1k", "25.6k", "4G"
  void count(const std::string& name, int64_t* target, const std::string& help);
  void count(const std::string& name, std::optional<int64_t>* target, const std::string& help);
  void list(const std::string& name, std::vector<std::string>* target, const std::string& help);
  void toggle(const std::string& name, bool* target, const std::string& help);  // --x / --no-x
  void positional(const std::string& name, std::string* target, const std::string& help);
  // The heading of --help under which the flags that follow stand.
  void section(const std::string& name);
  // The hints and errors of a flag table, which lives as long as the program.
  void table_flags(std::span<const FlagRule> rules);

  // Parses and fills the variables. Returns the notes of accepted hints. Throws ConfigError with a suggestion for what
  // is unknown, HelpShown when --help was asked for (and printed).
  std::vector<std::string> parse(const std::vector<std::string>& arguments);

  bool given(const std::string& name) const;
  std::string command() const;
  std::vector<std::string> known_flags() const;

  struct HelpShown {};

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "1k" = 1000, "1K" = 1024, "25.6k" = 25600; likewise m, M, g, G. Throws ConfigError naming the flag.
int64_t parse_count(const std::string& text, const std::string& flag);

}  // namespace tutti

#include "apps/flag_parser.h"

#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <deque>
#include <iostream>

#include "apps/argv.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/nearest_name.h"

namespace tutti {
namespace {

bool is_harmless(const FlagRule& rule, const std::string& value) {
  std::string_view rest = rule.harmless;
  while (!rest.empty()) {
    const size_t bar = rest.find('|');
    if (rest.substr(0, bar) == value) return true;
    if (bar == std::string_view::npos) break;
    rest.remove_prefix(bar + 1);
  }
  return false;
}

// true, True and TRUE, as YAML has it; nothing for other values and for text in quotes.
std::optional<bool> yaml_boolean(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return std::nullopt;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

Json yaml_to_json(const YAML::Node& node) {
  Json out;
  if (node.IsMap()) {
    out = Json::object();
    for (const auto& entry : node) out[entry.first.as<std::string>()] = yaml_to_json(entry.second);
  } else if (node.IsSequence()) {
    out = Json::array();
    for (const auto& item : node) out.push_back(yaml_to_json(item));
  } else if (node.IsScalar()) {
    if (const auto boolean = yaml_boolean(node)) return *boolean;
    const Json number = node.Tag() == "!" ? Json() : Json::parse(node.Scalar(), nullptr, /*allow_exceptions=*/false);
    out = number.is_number() ? number : Json(node.Scalar());
  }
  return out;
}

// The flags of a YAML file as they would be typed: {tensor-parallel-size: 2, api-key: [a, b], enable-x: false}. A map is
// the JSON of flags that take some.
std::vector<std::string> flags_of_file(const std::string& path) {
  std::vector<std::string> arguments;
  try {
    const YAML::Node root = YAML::Load(read_file(path));
    if (!root.IsMap()) throw ConfigError("--config " + path + ": expected flags as \"name: value\" lines");
    for (const auto& entry : root) {
      const std::string name = "--" + entry.first.as<std::string>();
      if (entry.second.IsSequence()) {
        arguments.push_back(name);
        for (const auto& item : entry.second) arguments.push_back(item.as<std::string>());
      } else if (entry.second.IsMap()) {
        arguments.insert(arguments.end(), {name, dump_json(yaml_to_json(entry.second))});
      } else if (entry.second.IsScalar()) {
        if (const auto on = yaml_boolean(entry.second)) {
          arguments.push_back(*on ? name : "--no-" + name.substr(2));
        } else {
          arguments.insert(arguments.end(), {name, entry.second.Scalar()});
        }
      } else {
        throw ConfigError("--config " + path + ": " + name + " has no value");
      }
    }
  } catch (const YAML::Exception& e) {
    throw ConfigError("--config " + path + ": " + e.what());
  } catch (const IoError& e) {
    throw ConfigError("--config " + path + ": expected a YAML file of flags, " + e.what());
  }
  return arguments;
}

struct Given {
  std::vector<std::string> arguments;  // the file's come first, so that those of the command line win
  std::string file;
  size_t num_from_file = 0;
};

Given with_config_file(const std::vector<std::string>& arguments) {
  Given given;
  std::vector<std::string> rest;
  std::vector<std::string>& from_file = given.arguments;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] != "--config") {
      rest.push_back(arguments[i]);
      continue;
    }
    if (i + 1 == arguments.size()) throw ConfigError("--config needs the name of a YAML file");
    given.file = arguments[++i];
    from_file = normalize_arguments(flags_of_file(given.file));
  }
  given.num_from_file = from_file.size();
  from_file.insert(from_file.end(), rest.begin(), rest.end());
  return given;
}

// What CLI11 says of a value that is missing or of another type.
std::string plain_words(const std::string& message) {
  const std::string conversion = "Could not convert: ";
  if (message.starts_with(conversion)) {  // "Could not convert: --port = abc"
    std::string flag = message.substr(conversion.size());
    if (const size_t equals = flag.find(" = "); equals != std::string::npos) flag.replace(equals, 3, " ");
    return flag + ": expected a number";
  }
  const size_t colon = message.find(": ");
  if (colon != std::string::npos && message.find(" required ") != std::string::npos && message.ends_with(" missing")) {
    return message.substr(0, colon) + " needs a value";  // "--port: 1 required INT missing"
  }
  return message;
}

// "--[no-]x" in the help.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    if (const size_t brace = name.find('{'); brace != std::string::npos) name.erase(brace, name.find('}', brace) + 1 - brace);
    if (const size_t off = name.find(",--no-"); off != std::string::npos) name = "--[no-]" + name.substr(off + 6);
    return name;
  }
};

}  // namespace

int64_t parse_count(const std::string& text, const std::string& flag) {
  double factor = 1;
  std::string digits = text;
  if (!digits.empty()) {
    switch (digits.back()) {
      case 'k': factor = 1e3; break;
      case 'm': factor = 1e6; break;
      case 'g': factor = 1e9; break;
      case 't': factor = 1e12; break;
      case 'K': factor = 1 << 10; break;
      case 'M': factor = 1 << 20; break;
      case 'G': factor = 1 << 30; break;
      case 'T': factor = static_cast<double>(int64_t{1} << 40); break;
      default: break;
    }
    if (factor != 1) digits.pop_back();
  }
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(digits, &used) * factor;
  } catch (const std::exception&) {
    used = std::string::npos;
  }
  const bool whole = used == digits.size() && std::abs(value) < 9e15 && std::abs(value - std::round(value)) < 1e-6;
  if (!whole) throw ConfigError(flag + " " + text + ": expected a number such as 4096, 32k (thousands) or 32K (of 1024)");
  return static_cast<int64_t>(std::llround(value));
}

struct FlagParser::Impl {
  explicit Impl(const std::string& command, const std::string& summary) : app(summary, command) {
    app.formatter(std::make_shared<HelpFormatter>());
    app.set_help_flag("--help,-h", "this text");
    app.add_option("--config", texts.emplace_back(), "a YAML file of flags, \"port: 8001\"; the command line wins");  // read before
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.allow_extras(true);
  }

  CLI::App app;
  std::deque<std::string> texts;                 // raw values of counts and of table flags
  std::vector<std::function<void()>> finishers;  // turn raw values into variables
  std::vector<std::string> notes;

  void table_flag(const FlagRule& rule);
  void judge(const FlagRule& rule, bool asked, const std::string& value);
  // `origin`: the configuration file that has it, "" for the command line.
  [[noreturn]] void unknown(const std::string& argument, const std::vector<std::string>& known, const std::string& origin);
};

FlagParser::FlagParser(std::string command, std::string summary) : impl_(std::make_unique<Impl>(command, summary)) {}
FlagParser::~FlagParser() = default;

void FlagParser::value(const std::string& name, std::string* target, const std::string& help) {
  impl_->app.add_option(name, *target, help);
}
void FlagParser::value(const std::string& name, int* target, const std::string& help) {
  impl_->app.add_option(name, *target, help);
}
void FlagParser::value(const std::string& name, int64_t* target, const std::string& help) {
  impl_->app.add_option(name, *target, help);
}
void FlagParser::value(const std::string& name, uint64_t* target, const std::string& help) {
  impl_->app.add_option(name, *target, help);
}
void FlagParser::value(const std::string& name, double* target, const std::string& help) {
  impl_->app.add_option(name, *target, help);
}
void FlagParser::value(const std::string& name, std::optional<int>* target, const std::string& help) {
  impl_->app.add_option(name, *target, help);
}
void FlagParser::count(const std::string& name, int64_t* target, const std::string& help) {
  std::string& text = impl_->texts.emplace_back();
  CLI::Option* option = impl_->app.add_option(name, text, help);
  impl_->finishers.push_back([=, &text] {
    if (option->count() > 0) *target = parse_count(text, name);
  });
}
void FlagParser::count(const std::string& name, std::optional<int64_t>* target, const std::string& help) {
  std::string& text = impl_->texts.emplace_back();
  CLI::Option* option = impl_->app.add_option(name, text, help);
  impl_->finishers.push_back([=, &text] {
    if (option->count() > 0) *target = parse_count(text, name);
  });
}
void FlagParser::list(const std::string& name, std::vector<std::string>* target, const std::string& help) {
  impl_->app.add_option(name, *target, help)->expected(1, -1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}
void FlagParser::toggle(const std::string& name, bool* target, const std::string& help) {
  impl_->app.add_flag(name + ",!--no-" + name.substr(2), *target, help);
}
void FlagParser::positional(const std::string& name, std::string* target, const std::string& help) {
  impl_->app.add_option(name, *target, help);
}

void FlagParser::section(const std::string& name) { impl_->app.option_defaults()->group(name); }

void FlagParser::table_flags(std::span<const FlagRule> rules) {
  for (const FlagRule& rule : rules) {
    if (rule.state != FlagState::kWorks) impl_->table_flag(rule);
  }
}

void FlagParser::Impl::table_flag(const FlagRule& rule) {
  const std::string name(rule.name);
  std::string& text = texts.emplace_back();
  constexpr const char* kHidden = "";
  CLI::Option* option = nullptr;
  if (rule.kind == FlagKind::kSwitch) {
    option = app.add_flag(name + "{on},!--no-" + name.substr(2) + "{off}", text, "");
  } else {
    option = app.add_option(name, text, "");
    if (rule.kind == FlagKind::kList) option->expected(1, -1)->multi_option_policy(CLI::MultiOptionPolicy::Join);
  }
  option->group(kHidden);
  finishers.push_back([this, &rule, &text, option] { judge(rule, option->count() > 0, text); });
}

void FlagParser::Impl::judge(const FlagRule& rule, bool asked, const std::string& value) {
  if (!asked || is_harmless(rule, value)) return;
  if (rule.kind == FlagKind::kSwitch && (value == "off" || value == "false")) return;
  const std::string name(rule.name);
  if (rule.state == FlagState::kError) throw ConfigError(name + " cannot be had: " + std::string(rule.why));
  notes.push_back(name + " has no effect: " + std::string(rule.why));
}

std::vector<std::string> FlagParser::known_flags() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : impl_->app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

void FlagParser::Impl::unknown(const std::string& argument, const std::vector<std::string>& known, const std::string& origin) {
  if (!argument.starts_with("-")) throw ConfigError(origin + "unexpected argument \"" + argument + "\"");
  const std::string near = likely_name(argument, known);
  throw ConfigError(origin + "unknown flag " + argument + (near.empty() ? ": " + app.get_name() + " --help lists all" : "; near: " + near));
}

std::vector<std::string> FlagParser::parse(const std::vector<std::string>& arguments) {
  const Given given = with_config_file(normalize_arguments(arguments));
  std::vector<std::string> normalized = given.arguments;
  std::reverse(normalized.begin(), normalized.end());  // CLI11 takes a vector from its end
  try {
    impl_->app.parse(normalized);
  } catch (const CLI::CallForHelp&) {
    std::cout << impl_->app.help();
    throw HelpShown{};
  } catch (const CLI::ParseError& e) {
    throw ConfigError(plain_words(e.what()));
  }
  const std::vector<std::string> extras = impl_->app.remaining();
  if (!extras.empty()) {
    const auto end = given.arguments.begin() + static_cast<std::ptrdiff_t>(given.num_from_file);
    const bool of_file = std::find(given.arguments.begin(), end, extras.front()) != end;
    impl_->unknown(extras.front(), known_flags(), of_file ? "--config " + given.file + ": " : "");
  }
  for (const auto& finish : impl_->finishers) finish();
  return impl_->notes;
}

std::string FlagParser::command() const { return impl_->app.get_name(); }

bool FlagParser::given(const std::string& name) const { return impl_->app.count(name) > 0; }

}  // namespace tutti

#include "apps/argv.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace tutti {
namespace {

constexpr std::array kShortNames = {
    std::pair{"-tp", "--tensor-parallel-size"},
    std::pair{"-pp", "--pipeline-parallel-size"},
    std::pair{"-dp", "--data-parallel-size"},
    std::pair{"-dpl", "--data-parallel-size-local"},
    std::pair{"-dpn", "--data-parallel-rank"},
    std::pair{"-dpr", "--data-parallel-start-rank"},
    std::pair{"-dpa", "--data-parallel-address"},
    std::pair{"-dpp", "--data-parallel-rpc-port"},
    std::pair{"-dpb", "--data-parallel-backend"},
    std::pair{"-dph", "--data-parallel-hybrid-lb"},
    std::pair{"-dpe", "--data-parallel-external-lb"},
    std::pair{"-dcp", "--decode-context-parallel-size"},
    std::pair{"-pcp", "--prefill-context-parallel-size"},
    std::pair{"-asc", "--api-server-count"},
    std::pair{"-ep", "--enable-expert-parallel"},
    std::pair{"-cc", "--compilation-config"},
    std::pair{"-sc", "--speculative-config"},
    std::pair{"-O", "--optimization-level"},
    std::pair{"-q", "--quantization"},
    std::pair{"-n", "--nnodes"},
    std::pair{"-r", "--node-rank"},
};

std::optional<std::string> long_name(std::string_view name) {
  for (const auto& [shortcut, full] : kShortNames) {
    if (name == shortcut) return full;
  }
  return std::nullopt;
}

// One flag with its value, if it was attached by '='.
struct Flag {
  std::string name;
  std::optional<std::string> value;
};

// Nothing when `argument` is not a flag ("-1" and "-0.5" are values).
std::optional<Flag> parse_flag(const std::string& argument) {
  if (argument.size() < 2 || argument[0] != '-' || argument == "--") return std::nullopt;
  if (std::isdigit(static_cast<unsigned char>(argument[1])) != 0 || argument[1] == '.') return std::nullopt;
  Flag flag;
  const size_t equals = argument.find('=');
  flag.name = argument.substr(0, equals);
  if (equals != std::string::npos) flag.value = argument.substr(equals + 1);
  if (flag.name.starts_with("--")) {
    // The part after the first dot is a JSON key, whose underscores count.
    const size_t name_end = std::min(flag.name.find('.'), flag.name.size());
    std::replace(flag.name.begin(), flag.name.begin() + static_cast<std::ptrdiff_t>(name_end), '_', '-');
  } else if (const auto full = long_name(flag.name.substr(0, flag.name.find('.')))) {
    const size_t dot = flag.name.find('.');
    flag.name = *full + (dot == std::string::npos ? "" : flag.name.substr(dot));
  } else if (flag.name.starts_with("-O") && flag.name.size() == 3 && !flag.value) {
    return Flag{"--optimization-level", flag.name.substr(2)};  // -O3
  }
  return flag;
}

// A value as JSON when it is JSON, else as a string.
Json json_value(const std::string& text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_discarded() ? Json(text) : value;
}

// Puts `value` at "a.b.c" inside `object`.
void put_dotted(Json& object, std::string_view path, const Json& value, const std::string& flag) {
  Json* at = &object;
  while (true) {
    if (!at->is_object()) throw ConfigError(flag + "." + std::string(path) + ": a part before it is not a JSON object");
    const size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    if (dot == std::string_view::npos) {
      (*at)[key] = value;
      return;
    }
    if (!at->contains(key)) (*at)[key] = Json::object();
    at = &(*at)[key];
    path.remove_prefix(dot + 1);
  }
}

}  // namespace

std::vector<std::string> normalize_arguments(const std::vector<std::string>& arguments) {
  std::vector<std::string> result;
  std::vector<std::pair<std::string, Json>> dotted;  // flags with dotted parts, in order of appearance
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      result.insert(result.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    const auto flag = parse_flag(arguments[i]);
    if (!flag) {
      result.push_back(arguments[i]);
      continue;
    }
    const size_t dot = flag->name.find('.');
    if (!flag->name.starts_with("--") || dot == std::string::npos) {
      result.push_back(flag->name);
      if (flag->value) result.push_back(*flag->value);
      continue;
    }
    if (!flag->value && i + 1 == arguments.size()) throw ConfigError(flag->name + " needs a value");
    const std::string value = flag->value ? *flag->value : arguments[++i];
    const std::string name = flag->name.substr(0, dot);
    auto entry = std::find_if(dotted.begin(), dotted.end(), [&](const auto& d) { return d.first == name; });
    if (entry == dotted.end()) entry = dotted.insert(dotted.end(), {name, Json::object()});
    put_dotted(entry->second, std::string_view(flag->name).substr(dot + 1), json_value(value), name);
  }
  for (const auto& [name, parts] : dotted) {
    const auto whole = std::find(result.begin(), result.end(), name);
    if (whole == result.end() || whole + 1 == result.end()) {
      result.insert(result.end(), {name, dump_json(parts)});
      continue;
    }
    Json merged = json_value(*(whole + 1));
    if (!merged.is_object()) throw ConfigError(name + ": " + *(whole + 1) + " is not a JSON object");
    merged.merge_patch(parts);
    *(whole + 1) = dump_json(merged);
  }
  return result;
}

}  // namespace tutti

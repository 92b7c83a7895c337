#include "bench/workload.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/unicode.h"

namespace tutti {
namespace {

using Random = std::mt19937_64;

constexpr EncodeOptions kPlain{.add_special_tokens = false, .parse_special_tokens = false};

// Tokens that are ordinary text, of whole characters.
std::vector<TokenId> ordinary_tokens(const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    const std::string_view bytes = tokenizer.token_bytes(token);
    if (!tokenizer.is_special(token) && !bytes.empty() && valid_utf8(bytes)) ids.push_back(token);
  }
  if (ids.empty()) throw ConfigError("the tokenizer has no ordinary tokens");
  return ids;
}

// Text that tokenises to as nearly `wanted` tokens as can be: random tokens rarely come back the same from their text.
BenchPrompt text_of_length(std::vector<TokenId> ids, int64_t wanted, const Tokenizer& tokenizer,
                           const std::vector<TokenId>& ordinary, Random& random) {
  constexpr int kTries = 8;
  BenchPrompt best;
  for (int i = 0; i < kTries; ++i) {
    BenchPrompt prompt{.text = tokenizer.decode(ids, false)};
    ids = tokenizer.encode(prompt.text, kPlain);
    prompt.num_tokens = static_cast<int64_t>(ids.size());
    if (i == 0 || std::abs(prompt.num_tokens - wanted) < std::abs(best.num_tokens - wanted)) best = prompt;
    if (prompt.num_tokens == wanted) break;
    if (prompt.num_tokens > wanted) ids.resize(static_cast<size_t>(wanted));
    while (static_cast<int64_t>(ids.size()) < wanted) ids.push_back(ordinary[random() % ordinary.size()]);
  }
  return best;
}

std::vector<TokenId> random_tokens(int64_t count, const std::vector<TokenId>& ordinary, Random& random) {
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(ordinary[random() % ordinary.size()]);
  return ids;
}

int64_t vary(int64_t length, double ratio, Random& random) {
  const auto low = static_cast<int64_t>(std::floor(static_cast<double>(length) * (1 - ratio)));
  const auto high = static_cast<int64_t>(std::ceil(static_cast<double>(length) * (1 + ratio)));
  return std::max<int64_t>(1, std::uniform_int_distribution<int64_t>(low, high)(random));
}

std::vector<BenchPrompt> random_prompts(const WorkloadOptions& o, const Tokenizer& tokenizer, Random& random) {
  if (o.random_range_ratio < 0 || o.random_range_ratio >= 1) throw ConfigError("--random-range-ratio: expected 0 up to, not including, 1");
  const auto ordinary = ordinary_tokens(tokenizer);
  const std::vector<TokenId> prefix = random_tokens(o.random_prefix_len, ordinary, random);
  std::vector<BenchPrompt> prompts;
  for (int64_t i = 0; i < o.num_prompts; ++i) {
    const int64_t own = vary(o.random_input_len, o.random_range_ratio, random);
    std::vector<TokenId> ids = prefix;
    const std::vector<TokenId> rest = random_tokens(own, ordinary, random);
    ids.insert(ids.end(), rest.begin(), rest.end());
    prompts.push_back(text_of_length(std::move(ids), o.random_prefix_len + own, tokenizer, ordinary, random));
    prompts.back().output_len = vary(o.random_output_len, o.random_range_ratio, random);
  }
  return prompts;
}

std::vector<BenchPrompt> repeated_prefixes(const WorkloadOptions& o, const Tokenizer& tokenizer, Random& random) {
  if (o.num_prefixes < 1) throw ConfigError("--prefix-repetition-num-prefixes: expected at least 1");
  const auto ordinary = ordinary_tokens(tokenizer);
  std::vector<std::vector<TokenId>> prefixes;
  for (int64_t i = 0; i < o.num_prefixes; ++i) prefixes.push_back(random_tokens(o.prefix_len, ordinary, random));
  std::vector<BenchPrompt> prompts;
  for (int64_t i = 0; i < o.num_prompts; ++i) {
    std::vector<TokenId> ids = prefixes[static_cast<size_t>(i % o.num_prefixes)];
    const std::vector<TokenId> rest = random_tokens(o.suffix_len, ordinary, random);
    ids.insert(ids.end(), rest.begin(), rest.end());
    prompts.push_back(text_of_length(std::move(ids), o.prefix_len + o.suffix_len, tokenizer, ordinary, random));
    prompts.back().output_len = o.prefix_output_len;
  }
  return prompts;
}

int64_t count_tokens(const std::string& text, const Tokenizer& tokenizer) {
  return static_cast<int64_t>(tokenizer.encode(text, kPlain).size());
}

// [{"conversations": [{"value": question}, {"value": answer}, ...]}, ...]: the first exchange of each, unless it is very
// short or very long.
std::vector<BenchPrompt> sharegpt_prompts(const WorkloadOptions& o, const Tokenizer& tokenizer, Random& random) {
  constexpr int64_t kShortest = 4;
  constexpr int64_t kMostInput = 1024;
  constexpr int64_t kMostTotal = 2048;
  const Json file = read_json_file(o.path);
  if (!file.is_array()) throw IoError(o.path + ": expected a JSON list of conversations");
  std::vector<std::pair<std::string, std::string>> exchanges;
  for (const Json& entry : file) {
    const auto turns = entry.find("conversations");
    if (turns == entry.end() || !turns->is_array() || turns->size() < 2) continue;
    exchanges.emplace_back((*turns)[0].value("value", std::string()), (*turns)[1].value("value", std::string()));
  }
  if (o.shuffle) std::shuffle(exchanges.begin(), exchanges.end(), random);
  std::vector<BenchPrompt> prompts;
  for (const auto& [question, answer] : exchanges) {
    if (static_cast<int64_t>(prompts.size()) == o.num_prompts) break;
    BenchPrompt prompt{.text = question, .num_tokens = count_tokens(question, tokenizer)};
    prompt.output_len = o.file_output_len > 0 ? o.file_output_len : count_tokens(answer, tokenizer);
    const bool fits = prompt.num_tokens >= kShortest && prompt.output_len >= kShortest && prompt.num_tokens <= kMostInput &&
                      prompt.num_tokens + prompt.output_len <= kMostTotal;
    if (fits) prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// {"prompt": "...", "output_tokens": 100} a line.
std::vector<BenchPrompt> custom_prompts(const WorkloadOptions& o, const Tokenizer& tokenizer, Random& random) {
  std::istringstream lines(read_file(o.path));
  std::vector<BenchPrompt> prompts;
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = o.path + ":" + std::to_string(number);
    const Json json = parse_json(line, where);
    if (!json.is_object() || !json.contains("prompt") || !json["prompt"].is_string()) {
      throw IoError(where + ": expected an object with a \"prompt\"");
    }
    BenchPrompt prompt{.text = json["prompt"].get<std::string>()};
    prompt.num_tokens = count_tokens(prompt.text, tokenizer);
    const auto own = json.find("output_tokens");
    prompt.output_len = o.file_output_len > 0                           ? o.file_output_len
                        : own != json.end() && own->is_number_integer() ? own->get<int64_t>()
                                                                        : o.default_output_len;
    prompts.push_back(std::move(prompt));
  }
  if (o.shuffle) std::shuffle(prompts.begin(), prompts.end(), random);
  return prompts;
}

}  // namespace

std::vector<BenchPrompt> make_prompts(const WorkloadOptions& o, const Tokenizer& tokenizer) {
  if (o.num_prompts < 1) throw ConfigError("--num-prompts: expected at least 1");
  Random random(o.seed);
  if (o.dataset == "random") return random_prompts(o, tokenizer, random);
  if (o.dataset == "prefix_repetition") return repeated_prefixes(o, tokenizer, random);
  const bool sharegpt = o.dataset == "sharegpt";
  if (!sharegpt && o.dataset != "custom") {
    throw ConfigError("--dataset-name " + o.dataset + ": expected random, prefix_repetition, sharegpt or custom");
  }
  if (o.path.empty()) throw ConfigError("--dataset-name " + o.dataset + " needs --dataset-path FILE");
  std::vector<BenchPrompt> prompts = sharegpt ? sharegpt_prompts(o, tokenizer, random) : custom_prompts(o, tokenizer, random);
  if (prompts.empty()) throw IoError(o.path + ": no prompt that can be used");
  const size_t found = prompts.size();
  for (size_t i = 0; o.oversample && static_cast<int64_t>(prompts.size()) < o.num_prompts; ++i) prompts.push_back(prompts[i % found]);
  prompts.resize(std::min(prompts.size(), static_cast<size_t>(o.num_prompts)));
  return prompts;
}

std::vector<double> make_arrivals(const ArrivalOptions& o, size_t count) {
  const bool ramp = !o.ramp_up.empty();
  if (ramp && o.ramp_up != "linear" && o.ramp_up != "exponential") {
    throw ConfigError("--ramp-up-strategy " + o.ramp_up + ": expected linear or exponential");
  }
  if (ramp && !(o.ramp_start > 0 && o.ramp_end > 0)) {
    throw ConfigError("--ramp-up-strategy needs --ramp-up-start-rps and --ramp-up-end-rps above 0");
  }
  if (!(o.burstiness > 0)) throw ConfigError("--burstiness: expected a number above 0");
  if (!ramp && o.rate <= 0) return std::vector<double>(count, 0.0);
  Random random(o.seed);
  std::gamma_distribution<double> gap(o.burstiness, 1 / o.burstiness);  // mean 1
  std::vector<double> times;
  double now = 0;
  for (size_t i = 0; i < count; ++i) {
    const double share = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0;
    double rate = o.rate;
    if (ramp) {
      rate = o.ramp_up == "linear" ? o.ramp_start + (o.ramp_end - o.ramp_start) * share
                                   : o.ramp_start * std::pow(o.ramp_end / o.ramp_start, share);
    }
    now += gap(random) / rate;
    times.push_back(now);
  }
  // The mean rate is the one that was asked for, whatever was drawn.
  if (!ramp && now > 0) {
    const double stretch = static_cast<double>(count) / o.rate / now;
    for (double& t : times) t *= stretch;
  }
  return times;
}

}  // namespace tutti

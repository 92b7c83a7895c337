// `tutti complete` and `tutti chat`: one question to a running server, the answer as it comes, and where the time went.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "apps/api_client.h"
#include "apps/commands.h"
#include "apps/environment.h"
#include "apps/flag_parser.h"
#include "apps/time_summary.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace tutti {
namespace {

struct Question {
  std::string prompt;
  std::string system;
  std::string url = "http://127.0.0.1:8000";
  std::string api_key;
  std::string model;
  int64_t max_tokens = 256;
  double temperature = 0.0;
};

struct Answer {
  Clock::time_point begin = Clock::now();
  Clock::time_point first{};
  Clock::time_point last{};
  int64_t prompt_tokens = 0;
  int64_t tokens = 0;
};

Question parse_question(Arguments arguments, bool chat) {
  Question q;
  std::string quick;
  FlagParser p(chat ? "tutti chat" : "tutti complete",
               chat ? "Asks a running server one question." : "Completes one prompt through a running server.");
  p.positional("prompt", &q.prompt, "the text");
  p.value("--quick", &quick, "-q: the same");
  p.value("--url", &q.url, "of the server, without TLS (http://127.0.0.1:8000)");
  p.value("--api-key", &q.api_key, "if the server wants one; also TUTTI_API_KEY and OPENAI_API_KEY");
  p.value("--model,--model-name", &q.model, "one of /v1/models, its first when left out");
  p.count("--max-tokens", &q.max_tokens, "most tokens of the answer (256)");
  p.value("--temperature", &q.temperature, "0 = greedy (0)");
  if (chat) p.value("--system,--system-prompt", &q.system, "the system message");
  std::replace(arguments.begin(), arguments.end(), std::string("-q"), std::string("--quick"));  // elsewhere -q is --quantization
  p.parse(arguments);
  if (q.prompt.empty()) q.prompt = quick;
  if (q.prompt.empty()) throw ConfigError(chat ? "which question? tutti chat \"...\"" : "which prompt? tutti complete \"...\"");
  for (const char* name : {"TUTTI_API_KEY", "OPENAI_API_KEY"}) {
    if (q.api_key.empty()) q.api_key = environment(name);
  }
  return q;
}

std::string first_model(ApiClient& client) {
  const Json models = parse_json(client.get("/v1/models"), "/v1/models");
  return models.at("data").at(0).at("id").get<std::string>();
}

Json request_body(const Question& q, const std::string& model, bool chat) {
  Json body = {{"model", model},
               {"max_tokens", q.max_tokens},
               {"temperature", q.temperature},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (!chat) {
    body["prompt"] = q.prompt;
    return body;
  }
  body["messages"] = Json::array();
  if (!q.system.empty()) body["messages"].push_back({{"role", "system"}, {"content", q.system}});
  body["messages"].push_back({{"role", "user"}, {"content", q.prompt}});
  return body;
}

std::string text_of(const Json& choice) {
  if (choice.contains("text") && choice["text"].is_string()) return choice["text"].get<std::string>();
  if (!choice.contains("delta") || !choice["delta"].contains("content")) return "";
  const Json& content = choice["delta"]["content"];
  return content.is_string() ? content.get<std::string>() : "";
}

void take_event(std::string_view data, Answer& answer) {
  const Json event = parse_json(data, "an event of the server");
  if (event.contains("error")) {
    std::printf("\n");
    throw CommError(event["error"].value("message", std::string("the server ended the answer")));
  }
  for (const Json& choice : event.value("choices", Json::array())) {
    const std::string text = text_of(choice);
    if (text.empty()) continue;
    if (answer.first == Clock::time_point{}) answer.first = Clock::now();
    answer.last = Clock::now();
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  if (event.contains("usage") && event["usage"].is_object()) {
    answer.prompt_tokens = event["usage"].value("prompt_tokens", int64_t{0});
    answer.tokens = event["usage"].value("completion_tokens", int64_t{0});
  }
}

// The server's counters: of each name with its labels, and of the name alone, labels summed up.
std::map<std::string, double> read_metrics(ApiClient& client) {
  std::map<std::string, double> metrics;
  std::istringstream lines(client.get("/metrics"));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.empty() || line[0] == '#') continue;
    const size_t value = line.rfind(' ');
    const double number = std::strtod(line.c_str() + value, nullptr);
    metrics[line.substr(0, line.find_first_of("{ "))] += number;
    if (line.find('{') != std::string::npos) metrics[line.substr(0, value)] = number;
  }
  return metrics;
}

void summarize(const Answer& answer, const std::map<std::string, double>& before, const std::map<std::string, double>& after) {
  const auto ms = [](Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double, std::milli>(b - a).count(); };
  if (answer.first == Clock::time_point{}) return;
  const double decode_ms = ms(answer.first, answer.last);
  const auto decoded = static_cast<double>(answer.tokens - 1);
  std::string rate;
  if (answer.tokens > 1 && decode_ms > 0) {
    rate = fmt::format(", {:.1f} ms a token ({:.1f} tokens/s)", decode_ms / decoded, decoded / decode_ms * 1e3);
  }
  log::fact("done", "{} in, {} out, TTFT {:.0f} ms{}", answer.prompt_tokens, answer.tokens, ms(answer.begin, answer.first), rate);
  const auto grown = [&](const std::string& name) {
    const auto then = before.find(name);
    const auto now = after.find(name);
    return now == after.end() ? 0.0 : now->second - (then == before.end() ? 0.0 : then->second);
  };
  StepTimes times{.compute = grown("tutti:compute_seconds_total"),
                  .comm = grown("tutti:comm_seconds_total"),
                  .pp_comm = grown("tutti:pp_comm_seconds_total"),
                  .host = grown("tutti:host_seconds_total"),
                  .step = grown("tutti:step_seconds_total"),
                  .bubble = grown("tutti:bubble_seconds_total"),
                  .comm_bytes = static_cast<int64_t>(grown("tutti:comm_bytes_total")),
                  .pp_comm_bytes = static_cast<int64_t>(grown("tutti:pp_comm_bytes_total"))};
  double longest = 0;
  constexpr std::string_view kOfRank = "tutti:rank_compute_seconds_total{rank=\"";
  for (const auto& [name, value] : after) {
    if (!name.starts_with(kOfRank) || grown(name) <= longest) continue;
    longest = grown(name);
    times.slowest_rank = std::atoi(name.c_str() + kOfRank.size());
  }
  const double sum = times.compute + times.comm + times.host;
  if (sum <= 0) return;
  log::fact("time", "{} of {:.2f} s{}", describe_shares(times, sum), sum, describe_traffic(times));
}

int ask(const Arguments& arguments, bool chat) {
  const Question q = parse_question(arguments, chat);
  log::setup({});
  ApiClient client(q.url, q.api_key);
  const std::string model = q.model.empty() ? first_model(client) : q.model;
  const auto before = read_metrics(client);
  Answer answer;
  client.stream(chat ? "/v1/chat/completions" : "/v1/completions", dump_json(request_body(q, model, chat)),
                [&](std::string_view data) { take_event(data, answer); });
  std::printf("\n");
  summarize(answer, before, read_metrics(client));
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace

int run_complete(const Arguments& arguments) { return ask(arguments, false); }
int run_chat(const Arguments& arguments) { return ask(arguments, true); }

}  // namespace tutti

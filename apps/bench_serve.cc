// `tutti bench serve`: load on a running OpenAI-compatible server, printed and saved in the form of `vllm bench serve`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <tuple>

#include "apps/api_client.h"
#include "apps/bench_commands.h"
#include "apps/bench_flags.h"
#include "apps/model_path.h"
#include "apps/signals.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "bench/load_client.h"
#include "bench/serve_report.h"
#include "cluster/network.h"
#include "cluster/node_facts.h"
#include "cluster/units.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"

namespace tutti {
namespace {

struct Options {
  std::string backend = "openai";
  std::string base_url;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string endpoint;
  std::vector<std::string> headers;
  std::string api_key;
  std::string model;
  std::string served_name;
  std::string tokenizer;
  WorkloadOptions workload;
  ArrivalOptions arrivals;
  std::string rate = "inf";
  int max_concurrency = 0;
  int64_t num_warmups = 0;
  double ready_timeout_s = 0;
  Json sampling = Json::object();
  bool ignore_eos = false;
  std::string extra_body = "{}";
  std::vector<std::string> goodput;
  std::string percentile_metrics = "ttft,tpot,itl";
  std::string metric_percentiles = "99";
  bool save_result = false;
  bool save_detailed = false;
  bool append_result = false;
  std::string result_dir;
  std::string result_filename;
  std::vector<std::string> metadata;
  std::string label;
  std::string request_id_prefix = "bench-";
  bool disable_tqdm = false;

  bool chat() const { return backend == "openai-chat"; }
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t at = 0;
  while (at <= text.size() && !text.empty()) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::pair<std::string, std::string> key_value(const std::string& text, char separator, const char* flag) {
  const size_t at = text.find(separator);
  if (at == std::string::npos || at == 0) {
    throw ConfigError(fmt::format("{} {}: expected KEY{}VALUE", flag, text, separator));
  }
  return {text.substr(0, at), text.substr(at + 1)};
}

double parse_number(const std::string& text, const std::string& flag) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') throw ConfigError(flag + " " + text + ": expected a number");
  return value;
}

void target_flags(FlagParser& p, Options& o) {
  p.value("--backend", &o.backend, "openai (completions, also \"vllm\") or openai-chat");
  p.value("--base-url", &o.base_url, "http://HOST:PORT of the server (no TLS), in place of --host and --port");
  p.value("--host", &o.host, "of the server (127.0.0.1)");
  p.value("--port", &o.port, "of the server (8000)");
  p.value("--endpoint", &o.endpoint, "/v1/completions, or /v1/chat/completions for openai-chat");
  p.list("--header", &o.headers, "KEY=VALUE, sent with every request");
  p.value("--api-key", &o.api_key, "if the server wants one; also TUTTI_API_KEY and OPENAI_API_KEY");
  p.value("--model", &o.model, "one of /v1/models, its first when left out");
  p.value("--served-model-name", &o.served_name, "the name to send, when --model is a path");
  p.value("--tokenizer", &o.tokenizer, "a folder or .gguf file; left out: the model's, as --model or the server names it");
  p.value("--ready-check-timeout-sec", &o.ready_timeout_s, "seconds to wait for the server; 0 = it is there");
}

void load_flags(FlagParser& p, Options& o) {
  p.value("--seed", &o.workload.seed, "of prompts and arrivals (0)");
  p.value("--request-rate", &o.rate, "requests a second; inf = all at once");
  p.value("--burstiness", &o.arrivals.burstiness, "1 = Poisson arrivals, below 1 burstier, above more even");
  p.value("--ramp-up-strategy", &o.arrivals.ramp_up, "linear or exponential, from --ramp-up-start-rps to --ramp-up-end-rps");
  p.value("--ramp-up-start-rps", &o.arrivals.ramp_start, "requests a second at the beginning");
  p.value("--ramp-up-end-rps", &o.arrivals.ramp_end, "and at the end");
  p.value("--max-concurrency", &o.max_concurrency, "most requests at once; 0 = no limit");
  p.count("--num-warmups", &o.num_warmups, "requests before measuring (0)");
  p.toggle("--ignore-eos", &o.ignore_eos, "answers have the whole length");
  p.value("--extra-body", &o.extra_body, "JSON: more fields of every request");
}

void result_flags(FlagParser& p, Options& o) {
  p.list("--goodput", &o.goodput, "ttft:MS tpot:MS e2el:MS: what a good request keeps to");
  p.value("--percentile-metrics", &o.percentile_metrics, "ttft,tpot,itl,e2el");
  p.value("--metric-percentiles", &o.metric_percentiles, "99, or several: 50,90,99");
  p.toggle("--save-result", &o.save_result, "write a JSON file");
  p.toggle("--save-detailed", &o.save_detailed, "with the numbers of every request");
  p.toggle("--append-result", &o.append_result, "as a further line of the file");
  p.value("--result-dir", &o.result_dir, "folder of the file, made where it is missing");
  p.value("--result-filename", &o.result_filename, "in place of LABEL-RATEqps-MODEL-TIME.json");
  p.list("--metadata", &o.metadata, "KEY=VALUE, kept in the file");
  p.value("--label", &o.label, "of the run; left out: the backend");
  p.value("--request-id-prefix", &o.request_id_prefix, "of X-Request-Id");
  p.toggle("--disable-tqdm", &o.disable_tqdm, "no progress lines");
}

// Numbers that go into every request as they are.
class SamplingFlags {
 public:
  explicit SamplingFlags(FlagParser& p) : parser_(p) {
    for (const char* name : {"top_p", "top_k", "min_p", "temperature", "frequency_penalty", "presence_penalty", "repetition_penalty"}) {
      std::string flag = std::string("--") + name;
      std::replace(flag.begin(), flag.end(), '_', '-');
      p.value(flag, &values_[name], "of every request");
      flags_[name] = flag;
    }
    p.value("--logprobs", &logprobs_, "of every request");
  }
  Json fields(bool chat) const {
    Json out = {{"temperature", 0.0}};
    for (const auto& [name, flag] : flags_) {
      if (parser_.given(flag)) out[name] = values_.at(name);
    }
    if (out.contains("top_k")) out["top_k"] = static_cast<int64_t>(values_.at("top_k"));
    if (parser_.given("--logprobs")) {
      out["logprobs"] = chat ? Json(true) : Json(logprobs_);
      if (chat) out["top_logprobs"] = logprobs_;
    }
    return out;
  }

 private:
  const FlagParser& parser_;
  std::map<std::string, double> values_;
  std::map<std::string, std::string> flags_;
  int logprobs_ = 0;
};

void settle(Options& o) {
  if (o.backend == "vllm") o.backend = "openai";
  if (o.backend != "openai" && o.backend != "openai-chat") {
    throw ConfigError("--backend " + o.backend + ": expected openai, vllm or openai-chat");
  }
  if (o.endpoint.empty()) o.endpoint = o.chat() ? "/v1/chat/completions" : "/v1/completions";
  if (o.base_url.empty()) o.base_url = fmt::format("http://{}:{}", o.host, o.port);
  for (const char* name : {"TUTTI_API_KEY", "OPENAI_API_KEY"}) {
    if (const char* key = std::getenv(name); o.api_key.empty() && key != nullptr) o.api_key = key;
  }
  if (o.rate != "inf") {
    o.arrivals.rate = parse_number(o.rate, "--request-rate");
    if (!(o.arrivals.rate > 0)) throw ConfigError("--request-rate " + o.rate + ": expected a number above 0, or inf");
  }
  if (!o.arrivals.ramp_up.empty() && o.rate != "inf") throw ConfigError("--ramp-up-strategy sets the rate: leave out --request-rate");
  o.arrivals.seed = o.workload.seed;
}

ReportOptions report_options(const Options& o) {
  ReportOptions report;
  report.metrics = split(o.percentile_metrics, ',');
  report.percentiles.clear();
  for (const std::string& text : split(o.metric_percentiles, ',')) {
    report.percentiles.push_back(parse_number(text, "--metric-percentiles"));
    if (report.percentiles.back() < 0 || report.percentiles.back() > 100) {
      throw ConfigError("--metric-percentiles " + text + ": expected 0 to 100");
    }
  }
  for (const std::string& text : o.goodput) {
    const auto [name, limit] = key_value(text, ':', "--goodput");
    report.goodput.emplace_back(name, parse_number(limit, "--goodput " + name));
  }
  report.rate = o.arrivals.rate;
  report.burstiness = o.arrivals.burstiness;
  report.max_concurrency = o.max_concurrency;
  ServeReport({}, {}, 0, report);  // names what is wrong before the load, not after it
  return report;
}

// The first model of the server; waits for the server as long as was asked for.
Json ask_for_model(const Options& o, Signals& signals) {
  const Deadline deadline = Deadline::after(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(o.ready_timeout_s)));
  while (true) {
    try {
      ApiClient client(o.base_url, o.api_key, "--base-url");
      const Json models = parse_json(client.get("/v1/models"), "/v1/models");
      if (models.contains("data") && models["data"].is_array() && !models["data"].empty()) return models["data"][0];
      throw IoError("/v1/models of the server names no model");
    } catch (const IoError& e) {
      if (deadline.passed() || signals.interrupted()) throw;
      log::progress("waiting", fmt::format("for the server ({}), {:.0f} s left (--ready-check-timeout-sec)", e.what(),
                                           std::chrono::duration<double>(deadline.left()).count()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

// --tokenizer; else the model by one of its names, if its files are on this machine.
std::string find_tokenizer(const Options& o, const Json& served) {
  if (!o.tokenizer.empty()) return o.tokenizer;
  for (const std::string& name : {o.model, served.value("root", std::string()), served.value("id", std::string())}) {
    if (name.empty()) continue;
    try {
      find_model(name, "");
      return name;
    } catch (const ConfigError&) {
      continue;  // a name that only the server knows
    }
  }
  throw ConfigError("prompts are made to a number of tokens, and the model's files are not on this machine: --tokenizer FOLDER");
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, bool given) {
  const std::string path = find_model(name, "", given ? "--tokenizer" : "");
  if (path.ends_with(".gguf")) return Tokenizer::from_gguf(Checkpoint::open(path)->metadata());
  return Tokenizer::from_folder(path);
}

std::string request_body(const Options& o, const std::string& model, const BenchPrompt& prompt, const Json& extra) {
  Json body = {{"model", model}, {"stream", true}, {"stream_options", {{"include_usage", true}}}};
  if (o.chat()) {
    body["messages"] = {{{"role", "user"}, {"content", prompt.text}}};
    body["max_completion_tokens"] = prompt.output_len;
  } else {
    body["prompt"] = prompt.text;
    body["max_tokens"] = prompt.output_len;
  }
  body.update(o.sampling);
  if (o.ignore_eos) body["ignore_eos"] = true;
  body.update(extra);
  return dump_json(body);
}

LoadTarget make_target(const Options& o) {
  constexpr std::string_view kScheme = "http://";
  if (!o.base_url.starts_with(kScheme)) throw ConfigError("--base-url " + o.base_url + ": expected http://HOST:PORT");
  LoadTarget target;
  const std::string rest = o.base_url.substr(kScheme.size());
  std::tie(target.host, target.port) = split_address(rest.substr(0, rest.find('/')), 80);
  target.path = o.endpoint;
  if (!o.api_key.empty()) target.headers.emplace_back("Authorization", "Bearer " + o.api_key);
  for (const std::string& header : o.headers) target.headers.push_back(key_value(header, '=', "--header"));
  return target;
}

std::vector<LoadResult> warm_and_load(const Options& o, const LoadTarget& target, const std::vector<LoadRequest>& requests,
                                      Signals& signals, double* seconds) {
  LoadOptions load{.max_concurrency = o.max_concurrency};
  if (o.num_warmups > 0) {
    log::fact("warm-up", "{}", count_of(o.num_warmups, "request"));
    std::vector<LoadRequest> few;
    for (int64_t i = 0; i < o.num_warmups; ++i) few.push_back({requests[static_cast<size_t>(i) % requests.size()].body});
    load.on_progress = [&](int64_t, int64_t) { return signals.interrupted(); };
    run_load(target, few, load);
  }
  const auto begin = Clock::now();
  load.on_progress = [&](int64_t done, int64_t failed) {
    const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (!o.disable_tqdm && elapsed > 2) {  // a short load is over before anybody reads it
      log::progress("load", fmt::format("{} of {} done, {} failed, {:.0f} s", done,
                                        count_of(static_cast<int64_t>(requests.size()), "request"), failed, elapsed));
    }
    return signals.interrupted();
  };
  std::vector<LoadResult> results = run_load(target, requests, load);
  *seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return results;
}

// "all at once", "5 a second (burstiness 1), at most 8 at once"
std::string describe_arrivals(const Options& o) {
  const std::string limit = o.max_concurrency > 0 ? fmt::format("at most {} at once", o.max_concurrency) : "";
  if (o.arrivals.ramp_up.empty() && o.rate == "inf") return limit.empty() ? "all at once" : limit;
  const std::string rate = o.arrivals.ramp_up.empty()
                               ? fmt::format("{:g} a second (burstiness {:g})", o.arrivals.rate, o.arrivals.burstiness)
                               : fmt::format("{:g} to {:g} a second ({})", o.arrivals.ramp_start, o.arrivals.ramp_end, o.arrivals.ramp_up);
  return limit.empty() ? rate : rate + ", " + limit;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  return text;
}

std::string result_file(const Options& o, const std::string& model, const std::string& date) {
  std::string file = o.result_filename;
  if (file.empty()) {
    const std::string rate = o.arrivals.ramp_up.empty() ? o.rate + "qps"
                                                        : fmt::format("ramp-up-{}-{:g}qps-{:g}qps", o.arrivals.ramp_up,
                                                                      o.arrivals.ramp_start, o.arrivals.ramp_end);
    const std::string limit = o.max_concurrency > 0 ? fmt::format("-concurrency{}", o.max_concurrency) : "";
    file = fmt::format("{}-{}{}-{}-{}.json", o.label.empty() ? o.backend : o.label, rate, limit,
                       model.substr(model.rfind('/') + 1), date);
  }
  return o.result_dir.empty() ? file : o.result_dir + "/" + file;
}

// Before the load: nobody wants to learn after an hour that its result has no place.
void make_result_folder(const std::string& file) {
  const std::filesystem::path parent = std::filesystem::path(file).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error) throw IoError(fmt::format("cannot write results to {} ({}): give another --result-dir", folder, error.message()));
}

void save(const Options& o, const std::string& file, const std::string& date, const std::string& model, const std::string& tokenizer,
          const ServeReport& report) {
  const bool ramp = !o.arrivals.ramp_up.empty();
  Json out = {{"date", date},
              {"backend", o.backend},
              {"label", o.label.empty() ? Json() : Json(o.label)},
              {"model_id", model},
              {"tokenizer_id", tokenizer},
              {"num_prompts", o.workload.num_prompts}};
  for (const std::string& text : o.metadata) {
    const auto [key, value] = key_value(text, '=', "--metadata");
    out[key] = value;
  }
  out["request_rate"] = o.rate == "inf" ? Json("inf") : Json(o.arrivals.rate);
  out["burstiness"] = o.arrivals.burstiness;
  out["max_concurrency"] = o.max_concurrency > 0 ? Json(o.max_concurrency) : Json();
  if (ramp) {
    out["ramp_up_strategy"] = o.arrivals.ramp_up;
    out["ramp_up_start_rps"] = o.arrivals.ramp_start;
    out["ramp_up_end_rps"] = o.arrivals.ramp_end;
  }
  out.update(report.json(o.save_detailed));
  if (o.append_result) {
    std::ofstream stream(file, std::ios::app);
    stream << dump_json(out) << '\n';
    if (!stream.flush()) throw IoError("cannot write " + file);
  } else {
    write_file(file, dump_json(out) + "\n");
  }
  log::fact("saved", "{}", file);
}

}  // namespace

int run_bench_serve(const Arguments& arguments) {
  Options o;
  FlagParser p("tutti bench serve", "Puts load on a running OpenAI-compatible server and measures what its clients see.");
  target_flags(p, o);
  load_flags(p, o);
  WorkloadFlags workload_flags(p, o.workload);
  SamplingFlags sampling_flags(p);
  result_flags(p, o);
  p.table_flags(bench_serve_flag_rules());
  const std::vector<std::string> notes = p.parse(arguments);
  workload_flags.settle();
  settle(o);
  o.sampling = sampling_flags.fields(o.chat());
  const Json extra = parse_json(o.extra_body, "--extra-body");
  if (!extra.is_object()) throw ConfigError("--extra-body: expected a JSON object, got " + o.extra_body);
  const ReportOptions report_form = report_options(o);
  log::setup({});
  Signals signals;
  for (const std::string& note : notes) log::note("{}", note);

  const Json served = ask_for_model(o, signals);
  const std::string model = !o.served_name.empty() ? o.served_name : !o.model.empty() ? o.model : served.value("id", std::string());
  const bool saves = o.save_result || o.append_result;
  const std::string date = now_text();
  const std::string file = result_file(o, model, date);
  if (saves) make_result_folder(file);
  const std::string tokenizer_name = find_tokenizer(o, served);
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(tokenizer_name, !o.tokenizer.empty());
  const std::vector<BenchPrompt> prompts = make_prompts(o.workload, *tokenizer);
  const std::vector<double> arrivals = make_arrivals(o.arrivals, prompts.size());
  std::vector<LoadRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    requests.push_back({request_body(o, model, prompts[i], extra), arrivals[i], o.request_id_prefix + std::to_string(i)});
  }
  log::fact("load", "{} to {}{} (model {}), {}", count_of(static_cast<int64_t>(requests.size()), "request"), o.base_url, o.endpoint,
            model, describe_arrivals(o));
  double seconds = 0;
  const std::vector<LoadResult> results = warm_and_load(o, make_target(o), requests, signals, &seconds);
  const ServeReport report(prompts, results, seconds, report_form);
  std::fputs(report.text().c_str(), stdout);
  if (report.failed() > 0) {
    for (const LoadResult& result : results) {
      if (result.ok) continue;
      log::warning("{} of {} requests failed, the first one: {}", report.failed(), results.size(), result.error);
      break;
    }
  }
  if (saves) save(o, file, date, model, tokenizer_name, report);
  return static_cast<int>(report.failed() > 0 ? ExitCode::kFindings : ExitCode::kOk);
}

}  // namespace tutti

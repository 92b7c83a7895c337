// `tutti generate`: one prompt, no server. Tokens to stdout as they come, everything else to stderr.
#include <fmt/format.h>

#include <cstdio>

#include "apps/commands.h"
#include "apps/local_engine.h"
#include "apps/time_summary.h"
#include "base/error.h"
#include "base/log.h"
#include "text/detokenizer.h"

namespace tutti {
namespace {

struct Answer {
  int64_t prompt_tokens = 0;
  int64_t tokens = 0;
  Clock::time_point begin{};
  Clock::time_point first{};
  Clock::time_point last{};
  FinishReason reason = FinishReason::kNone;
  std::string error;
};

std::string render_prompt(const ServeOptions& options, const ServedModel& model) {
  if (!options.chat) return options.prompt;
  const auto special = [&](const std::optional<TokenId>& id) { return id ? model.tokenizer->token(*id) : std::string(); };
  return model.chat_template->render({{"messages", {{{"role", "user"}, {"content", options.prompt}}}},
                                      {"add_generation_prompt", true},
                                      {"bos_token", special(model.tokenizer->bos_id())},
                                      {"eos_token", special(model.tokenizer->eos_id())}});
}

EngineRequest make_request(const ServeOptions& options, const ServedModel& model) {
  EngineRequest request;
  request.id = 1;
  EncodeOptions encode;
  encode.add_special_tokens = !options.chat;  // a template writes them itself
  request.prompt_token_ids = model.tokenizer->encode(render_prompt(options, model), encode);
  request.sampling = options.sampling;
  if (request.prompt_token_ids.empty()) throw ConfigError("--prompt is empty: nothing to complete");
  const int64_t left = model.info.max_model_len - static_cast<int64_t>(request.prompt_token_ids.size());
  if (left < 1) {
    throw ConfigError(fmt::format("--prompt has {} tokens, --max-model-len allows {} with the answer",
                                  request.prompt_token_ids.size(), model.info.max_model_len));
  }
  request.sampling.max_tokens = static_cast<int32_t>(std::min<int64_t>(request.sampling.max_tokens, left));
  return request;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Prints until the request has ended.
Answer stream_answer(LocalEngine& engine, const EngineRequest& request, const ServedModel& model, Signals& signals) {
  Answer answer;
  answer.prompt_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  answer.begin = Clock::now();
  Detokenizer detokenizer(*model.tokenizer, request.prompt_token_ids, {});
  while (answer.reason == FinishReason::kNone) {
    const auto output = engine.next(Deadline::after(std::chrono::milliseconds(100)));
    if (signals.interrupted()) engine.abort(request.id);
    if (!output) continue;
    const auto now = Clock::now();
    if (!output->token_ids.empty()) {
      if (answer.tokens == 0) answer.first = now;
      answer.last = now;
    }
    for (const int32_t id : output->token_ids) {
      ++answer.tokens;
      print(detokenizer.push(id));
    }
    answer.reason = output->finish_reason;
    answer.error = output->error;
  }
  print(detokenizer.finish() + "\n");
  return answer;
}

StepTimes step_times(const EngineStats& stats, const std::shared_ptr<RankGroup>& ranks) {
  StepTimes times{.compute = stats.compute_seconds, .comm = stats.comm_seconds, .pp_comm = stats.pp_comm_seconds,
                  .host = stats.host_seconds, .step = stats.step_seconds, .bubble = stats.bubble_seconds,
                  .comm_bytes = stats.comm_bytes, .pp_comm_bytes = stats.pp_comm_bytes};
  if (ranks != nullptr) times.slowest_rank = ranks->slowest_rank();
  return times;
}

void summarize(const Answer& answer, const EngineStats& stats, const StepTimes& times) {
  if (answer.tokens == 0) return;
  const auto ms = [](Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double, std::milli>(b - a).count(); };
  const double decode_ms = ms(answer.first, answer.last);
  const auto decoded = static_cast<double>(answer.tokens - 1);
  const std::string rate = answer.tokens > 1 ? fmt::format(", {:.1f} ms a token ({:.1f} tokens/s)", decode_ms / decoded,
                                                           decoded / decode_ms * 1e3)
                                             : "";
  log::fact("done", "{} in, {} out, TTFT {:.0f} ms{}", answer.prompt_tokens, answer.tokens, ms(answer.begin, answer.first), rate);
  const double wall = ms(answer.begin, answer.last) / 1e3;
  const double other = std::max(0.0, wall - stats.compute_seconds - stats.comm_seconds - stats.host_seconds);
  log::fact("time", "{}, waiting {:.0f}% of {:.2f} s in {} steps{}", describe_shares(times, wall), other / wall * 100, wall,
            stats.steps, describe_traffic(times));
}

}  // namespace

int run_generate(const Arguments& arguments) {
  Signals signals;  // first: looking for GPUs may start threads of the driver
  ServeOptions options = parse_generate_options(arguments);
  log::setup(options.log);
  log::fact("tutti", "{}", build_id());
  for (const std::string& note : options.notes) log::note("{}", note);
  const LaunchPlan plan = plan_of_head(options, "generate");
  ServedModel model = open_served_model(options, local_rank_count(plan, options.engine.parallel));
  make_request(options, model);  // what cannot work is said before minutes of loading, not after
  LocalEngine engine(options, plan, model, signals);
  if (!engine.started()) return static_cast<int>(ExitCode::kOk);
  const EngineRequest request = make_request(options, model);
  engine.submit(request);
  const Answer answer = stream_answer(engine, request, model, signals);
  const auto ranks = engine.ranks();
  engine.finish("the answer is complete");
  summarize(answer, engine.stats(), step_times(engine.stats(), ranks));
  if (answer.reason == FinishReason::kError) throw CommError(answer.error);
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace tutti

#include "server/generation.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "base/log.h"
#include "server/random_id.h"

namespace tutti {

Generation::Generation(const ApiContext& context, std::shared_ptr<HttpExchange> exchange, ApiRequest request,
                       std::vector<PreparedPrompt> prompts, std::string id, Times times)
    : context_(context),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      prompts_(std::move(prompts)),
      id_(std::move(id)),
      model_(request_.model.empty() ? context.model.served_names.front() : request_.model),
      created_(static_cast<int64_t>(std::time(nullptr))),
      times_(times),
      logprob_writer_(context.tokenizer, request_.tokens_as_ids) {
  choices_.resize(prompts_.size() * static_cast<size_t>(request_.n));
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].index = static_cast<int>(i);
    choices_[i].prompt = &prompts_[i / static_cast<size_t>(request_.n)];
  }
  num_open_ = choices_.size();
}

void Generation::start(const std::vector<int32_t>& max_tokens) {
  // All sequences of a request are put in the queue at once: with more than its size it is never taken.
  if (const int64_t most = context_.engine.max_queue_size(); static_cast<int64_t>(choices_.size()) > most) {
    fail(400, fmt::format("the prompts times n = {} are {} sequences, more than the {} that wait at once on this server "
                          "(--max-queue-size): send fewer in a request",
                          request_.n, choices_.size(), most),
         "n");
    return;
  }
  for (Choice& choice : choices_) {
    if (!submit(choice, max_tokens[static_cast<size_t>(choice.index / request_.n)])) return;
  }
  watch_client();
  if (!request_.stream) return;
  event_head_ = "data: {\"id\":";
  append_json_string(&event_head_, id_);
  event_head_ += request_.chat ? ",\"object\":\"chat.completion.chunk\",\"created\":"
                               : ",\"object\":\"text_completion\",\"created\":";
  event_head_ += std::to_string(created_) + ",\"model\":";
  append_json_string(&event_head_, model_);
  event_head_ += ",\"choices\":[";
  exchange_->start_stream();
}

// False when the engine does not take it: then the request has been answered.
bool Generation::submit(Choice& choice, int32_t max_tokens) {
  Detokenizer::Options options;
  options.stop = request_.stop;
  options.include_stop_str_in_output = request_.include_stop_str_in_output;
  options.skip_special_tokens = request_.skip_special_tokens;
  options.min_tokens = request_.sampling.min_tokens;
  choice.detokenizer =
      std::make_unique<Detokenizer>(context_.tokenizer, choice.prompt->token_ids, std::move(options));

  if (request_.chat && request_.chat->forces_tool()) {
    choice.tool_parser = request_.chat->tool_required ? ToolParser::list_of_calls() : ToolParser::arguments_of(request_.chat->named_tool);
  } else if (request_.chat && request_.chat->parse_tool_calls) {
    choice.tool_parser = ToolParser::make(context_.config.tool_call_parser);
  }

  EngineRequest request;
  request.id = choice.request_id = context_.engine.next_id();
  request.prompt_token_ids = choice.prompt->token_ids;
  request.sampling = request_.sampling;
  request.sampling.max_tokens = max_tokens;
  request.sampling.min_tokens = std::min(request.sampling.min_tokens, max_tokens);
  // The choices of one prompt differ, and are the same whenever the request is repeated.
  if (request.sampling.seed) *request.sampling.seed += static_cast<uint64_t>(choice.index % request_.n);
  request.priority = request_.priority;
  request.cache_salt = request_.cache_salt;
  request.arrival = times_.arrival;
  request.deadline = times_.deadline;
  const auto admission = context_.engine.submit(std::move(request), request_.n, exchange_->loop(),
                                                [self = shared_from_this(), &choice](TokenOutput output) {
                                                  self->receive(choice, std::move(output));
                                                });
  switch (admission) {
    case AsyncEngine::Admission::kAccepted:
      return true;
    case AsyncEngine::Admission::kQueueFull:
      fail(429, "the queue is full: try again later");
      return false;
    case AsyncEngine::Admission::kStopping:
      fail(503, "the server is shutting down and takes no new requests");
      return false;
    case AsyncEngine::Admission::kBroken:
      fail(503, "the engine has failed: " + context_.engine.stats().error);
      return false;
  }
  return false;
}

void Generation::watch_client() {
  exchange_->on_disconnect([self = shared_from_this()] {
    self->end_sequences(FinishReason::kAbort);
    self->release();
  });
  if (request_.stream) exchange_->on_writable([self = shared_from_this()] { self->flush_all(); });
  if (!times_.deadline) return;
  // The engine ends late requests too, but not while it waits for a step or for lost ranks.
  exchange_->on_deadline(*times_.deadline, [self = shared_from_this()] {
    if (!self->released_) self->fail(504, "the request's deadline has passed");
  });
}

void Generation::receive(Choice& choice, TokenOutput output) {
  if (released_ || choice.done) return;
  try {
    on_output(choice, std::move(output));
  } catch (const std::exception& e) {
    log::error("{}: {}", id_, e.what());
    if (!released_) fail(500, e.what());
  }
}

void Generation::on_output(Choice& choice, TokenOutput output) {
  if (output.finish_reason == FinishReason::kError || output.finish_reason == FinishReason::kAbort) {
    choice.done = true;  // the engine has already let go of it
    const bool late = times_.deadline && Clock::now() >= *times_.deadline;
    const bool ending = output.finish_reason == FinishReason::kAbort || !context_.engine.stats().healthy;
    // A healthy engine ends a request with an error when the request is too large for it.
    fail(late ? 504 : ending ? 503 : 400, output.error.empty() ? "the request was aborted" : output.error);
    return;
  }
  take_tokens(choice, output);
  if (request_.stream) {
    stream(choice);
  } else if (num_open_ == 0) {
    answer();
  }
}

void Generation::take_tokens(Choice& choice, TokenOutput& output) {
  choice.num_cached = output.num_cached_tokens;
  if (!output.prompt_logprobs.empty()) choice.prompt_logprobs = std::move(output.prompt_logprobs);
  const bool engine_ended = output.finish_reason != FinishReason::kNone;
  if (request_.echo_only) {
    if (engine_ended) finish(choice, "length", nullptr);
    return;
  }
  for (size_t i = 0; i < output.token_ids.size(); ++i) {
    ++choice.num_tokens;
    ++choice.tokens_since_event;
    choice.token_ids.push_back(output.token_ids[i]);
    if (i < output.logprobs.size()) choice.logprobs.push_back(std::move(output.logprobs[i]));
    if (!is_shown(output, i)) continue;
    add_text(choice, choice.detokenizer->push(output.token_ids[i]), choice.detokenizer->stopped());
    if (choice.detokenizer->stopped()) {
      if (!engine_ended) context_.engine.end(choice.request_id, FinishReason::kStop);
      finish(choice, "stop", choice.detokenizer->stop_string());
      return;
    }
  }
  if (!engine_ended) return;
  add_text(choice, choice.detokenizer->finish(), true);
  // A token that the client named is reported; the model's own end is not.
  const auto& named = request_.sampling.stop_token_ids;
  const bool by_client =
      output.stop_token && std::find(named.begin(), named.end(), *output.stop_token) != named.end();
  finish(choice, output.finish_reason == FinishReason::kStop ? "stop" : "length",
         by_client ? Json(*output.stop_token) : Json());
}

void Generation::add_text(Choice& choice, const std::string& text, bool last) {
  if (choice.tool_parser == nullptr) {
    choice.text += text;
    return;
  }
  const auto take = [&](ToolParser::Piece piece) {
    choice.text += piece.content;
    for (const ToolCall& call : piece.calls) {
      if (choice.num_tool_calls > 0 && !request_.chat->parallel_tool_calls) break;
      choice.tool_calls.push_back({{"index", choice.num_tool_calls++},
                                   {"id", "call_" + random_id()},
                                   {"type", "function"},
                                   {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    if (piece.arguments.empty()) return;
    if (choice.tool_calls.empty()) {  // its beginning has been sent
      choice.tool_calls.push_back({{"index", choice.num_tool_calls - 1}, {"function", {{"arguments", ""}}}});
    }
    choice.tool_calls.back()["function"]["arguments"].get_ref<std::string&>() += piece.arguments;
  };
  take(choice.tool_parser->push(text));
  if (last) take(choice.tool_parser->finish());
}

// The token that ended the sequence is no part of the text unless the client wants the stop in it.
bool Generation::is_shown(const TokenOutput& output, size_t i) const {
  const bool ends_it = output.finish_reason == FinishReason::kStop && i + 1 == output.token_ids.size();
  return !ends_it || request_.include_stop_str_in_output;
}

void Generation::finish(Choice& choice, const char* reason, Json stop_reason) {
  choice.done = true;
  // A call that the client itself has named ends with "stop", as OpenAI has it.
  const bool by_model = choice.num_tool_calls > 0 && request_.chat->named_tool.empty();
  choice.finish_reason = by_model && reason == std::string_view("stop") ? "tool_calls" : reason;
  choice.stop_reason = std::move(stop_reason);
  --num_open_;
}

void Generation::end_sequences(FinishReason counted_as) {
  for (Choice& choice : choices_) {
    if (choice.request_id != 0 && !std::exchange(choice.done, true))
      context_.engine.end(choice.request_id, counted_as);
  }
}

// One sequence's failure ends the whole request; a stream that has begun ends with the error as its last
// event.
void Generation::fail(int status, const std::string& message, const std::string& param) {
  end_sequences(FinishReason::kAbort);
  if (exchange_->started()) {
    exchange_->write("data: " + dump_json(error_json(status, message, param)) + "\n\n");
    exchange_->end();
  } else {
    exchange_->respond(error_response(status, message, param));
  }
  release();
}

// Breaks the circle of this object, the exchange and its handlers.
void Generation::release() {
  if (std::exchange(released_, true)) return;
  if (context_.config.log_outputs) log_end();
  exchange_->on_writable(nullptr);
  exchange_->on_disconnect(nullptr);
  exchange_->on_deadline(Clock::time_point::max(), nullptr);
}

void Generation::log_end() const {
  for (const Choice& choice : choices_) {
    const std::string& text = choice.detokenizer ? choice.detokenizer->text() : choice.text;
    const int64_t limit = context_.config.max_log_len;
    const bool cut = limit >= 0 && static_cast<int64_t>(text.size()) > limit;
    log::fact("request", "{} [{}]: {}, {} tokens out: {}", id_, choice.index,
              choice.finish_reason == nullptr ? "aborted" : choice.finish_reason, choice.num_tokens,
              dump_json(cut ? text.substr(0, static_cast<size_t>(limit)) : text));
  }
}

Usage Generation::usage(const Choice& choice) const {
  return {.prompt_tokens = static_cast<int64_t>(choice.prompt->token_ids.size()),
          .completion_tokens = choice.num_tokens,
          .cached_tokens = choice.num_cached};
}

// The n choices of a prompt share it.
Usage Generation::usage() const {
  Usage sum;
  for (const Choice& choice : choices_) {
    const Usage one = usage(choice);
    sum.completion_tokens += one.completion_tokens;
    if (choice.index % request_.n != 0) continue;
    sum.prompt_tokens += one.prompt_tokens;
    sum.cached_tokens += one.cached_tokens;
  }
  return sum;
}

// With the entry that the first token of a prompt cannot have.
std::vector<TokenLogprobs> Generation::aligned_prompt_logprobs(const Choice& choice) const {
  std::vector<TokenLogprobs> all = choice.prompt_logprobs;
  if (all.size() + 1 == choice.prompt->token_ids.size()) all.insert(all.begin(), TokenLogprobs());
  return all;
}

}  // namespace tutti

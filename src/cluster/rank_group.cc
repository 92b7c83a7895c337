#include "cluster/rank_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "protocol/wire.h"

namespace tutti {
namespace {

// How long a failure waits for graver signs: the report of a node's agent travels this long at most.
constexpr auto kLinger = std::chrono::milliseconds(750);
// A stopped process (SIGSTOP, a debugger) is given this long.
constexpr auto kStoppedPatience = std::chrono::seconds(5);

// What is wrong with a rank's answer, "" when nothing: in the order of the rows every one that samples has its token; of the
// others there may be log-probabilities of their prompts.
std::string misplaced(const RankGroup::Awaited& awaited, const ModelRunnerOutput& output, bool may_be_silent) {
  if (output.step != awaited.step) return fmt::format("step {} where {} was expected", output.step, awaited.step);
  if (may_be_silent && output.sampled.empty()) return "";
  const auto describe = [](bool token, RequestId id) { return fmt::format("{} of request {}", token ? "a token" : "no token", id); };
  auto next = output.sampled.begin();
  const auto found = [&] { return next == output.sampled.end() ? "nothing more" : describe(next->has_token, next->id); };
  for (const RankGroup::Awaited::Row& row : awaited.rows) {
    const bool there = next != output.sampled.end() && next->id == row.id;
    if ((there && next->has_token) != row.samples) {
      return fmt::format("step {} with {} where {} was expected", awaited.step, found(), describe(row.samples, row.id));
    }
    if (there) ++next;
  }
  if (next == output.sampled.end()) return "";
  return fmt::format("step {} with {} where nothing more was expected", awaited.step, found());
}

}  // namespace

RankGroup::RankGroup(int world_size) : ranks_(static_cast<size_t>(world_size)) {}

void RankGroup::attach(int rank, Place place, Sender sender) {
  std::lock_guard lock(mutex_);
  ranks_.at(static_cast<size_t>(rank)).place = std::move(place);
  ranks_[static_cast<size_t>(rank)].sender = std::move(sender);
}

void RankGroup::set_pid(int rank, pid_t pid) {
  std::lock_guard lock(mutex_);
  ranks_.at(static_cast<size_t>(rank)).place.pid = pid;
}

RankGroup::Place RankGroup::place(int rank) const {
  std::lock_guard lock(mutex_);
  return ranks_.at(static_cast<size_t>(rank)).place;
}

std::string RankGroup::name(int rank) const {
  const Place& place = ranks_[static_cast<size_t>(rank)].place;
  if (place.pid == 0) return fmt::format("rank {} ({})", rank, place.node);
  return fmt::format("rank {} ({}, pid {})", rank, place.node, place.pid);
}

void RankGroup::on_frame(int rank, Frame frame) {
  if (rank < 0 || rank >= world_size()) return;
  try {
    handle(rank, frame);
  } catch (const IoError& e) {
    std::lock_guard lock(mutex_);
    fail(Gravity::kSaidWhy, rank, fmt::format("{} sent what it should not: {}", name(rank), e.what()));
  }
}

void RankGroup::handle(int rank, Frame& frame) {
  Rank& r = ranks_[static_cast<size_t>(rank)];
  switch (frame.type) {
    case FrameType::kOutput: {
      ModelRunnerOutput output = wire::decode_model_runner_output(frame.payload);
      std::lock_guard lock(mutex_);
      r.outputs.push_back(std::move(output));
      if (all_answered()) changed_.notify_all();
      break;
    }
    case FrameType::kProgress: {
      Json progress = parse_json(frame.payload, "progress of a rank");
      std::lock_guard lock(mutex_);
      r.progress = std::move(progress);
      last_progress_ = Clock::now();
      changed_.notify_all();
      break;
    }
    case FrameType::kLoaded: {
      Json loaded = parse_json(frame.payload, "memory report of a rank");
      std::lock_guard lock(mutex_);
      r.loaded = std::move(loaded);
      last_progress_ = Clock::now();
      changed_.notify_all();
      break;
    }
    case FrameType::kFailed: {
      const auto [kind, message] = unpack_pair(frame.payload);
      std::lock_guard lock(mutex_);
      // A rank that blames another is a witness, not the cause.
      fail(kind == "comm" ? Gravity::kOwnWords : Gravity::kSaidWhy, rank, fmt::format("{}: {}", name(rank), message), kind == "config");
      break;
    }
    case FrameType::kStoreSet: {
      const auto [key, value] = unpack_pair(frame.payload);
      store_set(key, value);
      break;
    }
    case FrameType::kStoreGet:
      store_get(rank, frame.payload);
      break;
    default:
      throw IoError(fmt::format("a frame of type {}", static_cast<int>(frame.type)));
  }
}

void RankGroup::on_exit(int rank, const std::string& how) {
  if (rank < 0 || rank >= world_size()) return;
  std::lock_guard lock(mutex_);
  Rank& r = ranks_[static_cast<size_t>(rank)];
  r.ended = true;
  if (!ending_) {
    const bool killed = how.find("signal") != std::string::npos;
    fail(killed ? Gravity::kKilled : Gravity::kOwnWords, rank, fmt::format("{} {}", name(rank), how));
  }
  changed_.notify_all();
}

void RankGroup::on_lost(int rank, const std::string& why) {
  if (rank < 0 || rank >= world_size()) return;
  std::lock_guard lock(mutex_);
  if (ending_ || ranks_[static_cast<size_t>(rank)].ended) return;
  fail(Gravity::kLost, rank, fmt::format("{} is lost: {}", name(rank), why));
}

void RankGroup::on_state(int rank, char state) {
  if (rank < 0 || rank >= world_size()) return;
  std::lock_guard lock(mutex_);
  Rank& r = ranks_[static_cast<size_t>(rank)];
  const bool stopped = state == 'T' || state == 't';
  if (stopped && r.state != state) r.stopped_since = Clock::now();
  r.state = state;
  // Others that complain already need no more patience.
  const auto patience = failure_ ? std::chrono::seconds(0) : kStoppedPatience;
  if (stopped && !ending_ && Clock::now() - r.stopped_since >= patience) fail_stopped(rank);
}

// With mutex_ held.
void RankGroup::fail_stopped(int rank) {
  const Rank& r = ranks_[static_cast<size_t>(rank)];
  fail(Gravity::kKilled, rank,
       fmt::format("{} is stopped (process state {}), by SIGSTOP or a debugger: it answers nobody and is given up", name(rank), r.state));
}

// With mutex_ held.
void RankGroup::fail(Gravity gravity, int rank, const std::string& message, bool config) {
  if (ending_) return;
  if (!failure_) failed_at_ = Clock::now();
  if (!failure_ || gravity > gravity_) {
    failure_ = Failure{rank, message, config};
    gravity_ = gravity;
  }
  changed_.notify_all();
  if (gravity != Gravity::kOwnWords) return;
  for (int r = 0; r < world_size(); ++r) {
    const char state = ranks_[static_cast<size_t>(r)].state;
    if (state == 'T' || state == 't') fail_stopped(r);
  }
}

std::optional<RankGroup::Failure> RankGroup::failure() const {
  std::unique_lock lock(mutex_);
  if (!failure_) return std::nullopt;
  changed_.wait_until(lock, failed_at_ + kLinger, [this] { return gravity_ == Gravity::kKilled; });
  return failure_;
}

void RankGroup::throw_load_failure(std::unique_lock<std::mutex>& lock) const {
  changed_.wait_until(lock, failed_at_ + kLinger, [this] { return gravity_ == Gravity::kKilled; });
  if (failure_->config) throw ConfigError(failure_->message);
  throw_failure(lock);
}

void RankGroup::throw_failure(std::unique_lock<std::mutex>& lock) const {
  if (!failure_) throw CommError("the ranks have been asked to end");  // what happens to them then is no failure
  changed_.wait_until(lock, failed_at_ + kLinger, [this] { return gravity_ == Gravity::kKilled; });
  throw CommError(failure_->message, failure_->rank);
}

void RankGroup::answer(int rank, const std::string& key, const std::string& value) {
  Sender sender;
  {
    std::lock_guard lock(mutex_);
    sender = ranks_[static_cast<size_t>(rank)].sender;
  }
  try {
    sender(FrameType::kStoreValue, pack_pair(key, value));
  } catch (const CommError& e) {
    on_lost(rank, e.what());
  }
}

void RankGroup::store_set(const std::string& key, const std::string& value) {
  std::vector<int> asked;
  {
    std::lock_guard lock(mutex_);
    store_[key] = value;
    const auto [begin, end] = waiting_.equal_range(key);
    for (auto it = begin; it != end; ++it) asked.push_back(it->second);
    waiting_.erase(begin, end);
  }
  for (const int rank : asked) answer(rank, key, value);
}

void RankGroup::store_get(int rank, const std::string& key) {
  std::string value;
  {
    std::lock_guard lock(mutex_);
    const auto found = store_.find(key);
    if (found == store_.end()) {
      waiting_.emplace(key, rank);
      return;
    }
    value = found->second;
  }
  answer(rank, key, value);
}

std::vector<Json> RankGroup::wait_loaded(std::chrono::nanoseconds patience, std::chrono::nanoseconds interval,
                                         const std::function<bool(const std::vector<Json>&)>& progress) {
  std::unique_lock lock(mutex_);
  last_progress_ = Clock::now();
  while (true) {
    if (failure_) throw_load_failure(lock);
    const auto loading = std::find_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.loaded; });
    if (loading == ranks_.end()) break;
    if (Clock::now() - last_progress_ > patience) {
      const int rank = static_cast<int>(loading - ranks_.begin());
      throw CommError(fmt::format("{} made no progress with loading for {:.0f} s", name(rank),
                                  std::chrono::duration<double>(patience).count()),
                      rank);
    }
    std::vector<Json> all;
    for (const Rank& r : ranks_) all.push_back(r.progress);
    lock.unlock();
    if (!progress(all)) return {};
    lock.lock();
    changed_.wait_for(lock, interval);
  }
  lock.unlock();
  return loaded();
}

std::vector<Json> RankGroup::loaded() const {
  std::lock_guard lock(mutex_);
  std::vector<Json> all;
  for (const Rank& r : ranks_) all.push_back(r.loaded.value_or(Json()));
  return all;
}

void RankGroup::send_all(FrameType type, std::string_view payload) {
  for (int rank = 0; rank < world_size(); ++rank) {
    {
      std::unique_lock lock(mutex_);
      if (failure_) throw_failure(lock);
    }
    try {
      ranks_[static_cast<size_t>(rank)].sender(type, payload);
    } catch (const CommError& e) {
      std::unique_lock lock(mutex_);
      fail(Gravity::kLost, rank, fmt::format("{} is lost: {}", name(rank), e.what()));
      throw_failure(lock);
    }
  }
}

bool RankGroup::all_answered() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.outputs.empty(); });
}

std::string RankGroup::missing_ranks() const {
  std::string missing;
  for (int rank = 0; rank < world_size(); ++rank) {
    const Rank& r = ranks_[static_cast<size_t>(rank)];
    if (!r.outputs.empty()) continue;
    missing += fmt::format("{}{}, process state {}", missing.empty() ? "" : "; ", name(rank), r.state);
  }
  return missing;
}

ModelRunnerOutput RankGroup::wait_output(const Awaited& awaited, Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.instant(), [this] { return failure_ || all_answered(); });
  if (failure_) throw_failure(lock);
  if (!all_answered()) throw CommError(fmt::format("step {} is late, no answer from {}", awaited.step, missing_ranks()));
  ModelRunnerOutput merged;
  merged.step = awaited.step;
  for (int rank = 0; rank < world_size(); ++rank) {
    Rank& r = ranks_[static_cast<size_t>(rank)];
    ModelRunnerOutput output = std::move(r.outputs.front());
    r.outputs.pop_front();
    const bool last = rank + 1 == world_size();  // it is of the last stage, whose ranks know the tokens
    if (const std::string wrong = misplaced(awaited, output, /*may_be_silent=*/!last); !wrong.empty()) {
      const std::string message = fmt::format("{} answered {}", name(rank), wrong);
      fail(Gravity::kSaidWhy, rank, message);
      throw CommError(message, rank);
    }
    if (merged.sampled.empty()) merged.sampled = std::move(output.sampled);
    for (const StepTiming& timing : output.timings) count(timing);
    merged.timings.insert(merged.timings.end(), output.timings.begin(), output.timings.end());
  }
  return merged;
}

void RankGroup::count(const StepTiming& timing) {
  if (timing.rank < 0 || timing.rank >= world_size()) return;
  Times& times = ranks_[static_cast<size_t>(timing.rank)].times;
  ++times.steps;
  times.total += timing.total_us * 1e-6;
  times.compute += timing.compute_us * 1e-6;
  times.comm += timing.comm_us * 1e-6;
  times.comm_bytes += timing.comm_bytes;
  times.pp_comm += timing.pp_comm_us * 1e-6;
  times.pp_comm_bytes += timing.pp_comm_bytes;
}

std::vector<RankGroup::Times> RankGroup::times() const {
  std::lock_guard lock(mutex_);
  std::vector<Times> all;
  for (const Rank& r : ranks_) all.push_back(r.times);
  return all;
}

int RankGroup::slowest_rank() const {
  std::lock_guard lock(mutex_);
  const auto slowest = std::max_element(ranks_.begin(), ranks_.end(), [](const Rank& a, const Rank& b) {
    return a.times.compute < b.times.compute;
  });
  return static_cast<int>(slowest - ranks_.begin());
}

bool RankGroup::output_ready() const {
  std::lock_guard lock(mutex_);
  return failure_ || all_answered();
}

void RankGroup::expect_end() {
  std::lock_guard lock(mutex_);
  ending_ = true;
}

}  // namespace tutti

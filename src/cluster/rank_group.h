// All ranks of one epoch as the head sees them, wherever they run: what they sent, what they answered, and which of
// them failed first. Frames and exits come in from the threads that listen to ranks and nodes; the main thread waits
// for loading, the engine thread sends steps and waits for answers.
//
// A cluster fails as a whole. The first sign of a failure (a broken collective) is often not its cause (a killed
// process), so a failing wait lingers for a moment and reports the gravest sign.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/json.h"
#include "protocol/channel.h"
#include "protocol/step.h"

namespace tutti {

class RankGroup {
 public:
  using Sender = std::function<void(FrameType, std::string_view)>;

  struct Place {
    std::string node;  // "node2"
    pid_t pid = 0;
  };

  struct Failure {
    int rank = -1;
    std::string message;  // "rank 1 (node2, pid 4711) was killed by signal 9 (Killed)"
    bool config = false;  // in its own words: what was asked for cannot be, or does not fit
  };

  // Sums over all steps, in seconds.
  struct Times {
    int64_t steps = 0;
    double total = 0;
    double compute = 0;
    double comm = 0;
    int64_t comm_bytes = 0;
    double pp_comm = 0;  // of comm, between pipeline stages
    int64_t pp_comm_bytes = 0;
  };

  explicit RankGroup(int world_size);

  int world_size() const { return static_cast<int>(ranks_.size()); }

  // Main thread, before any of the rank's frames. `sender` may be called from any thread and may throw CommError.
  void attach(int rank, Place place, Sender sender);
  void set_pid(int rank, pid_t pid);
  Place place(int rank) const;

  // Puts a value in the store that ranks read. Any thread.
  void store_set(const std::string& key, const std::string& value);

  // What happened to a rank. Any thread.
  void on_frame(int rank, Frame frame);
  void on_exit(int rank, const std::string& how);
  void on_lost(int rank, const std::string& why);
  // The kernel's state letter of its process; one that stays stopped ('T') for too long fails the group.
  void on_state(int rank, char state);

  // The gravest sign of a group that has failed, after a moment for graver ones to come; nothing while it has not.
  std::optional<Failure> failure() const;

  // Waits until every rank has loaded; `progress` is called at least every `interval` with the latest progress of each
  // rank (null before its first); when it says false the wait ends with nothing. Throws CommError when the group fails, ConfigError
  // when a rank says that it cannot do what was asked; `patience` counts from the last progress.
  std::vector<Json> wait_loaded(std::chrono::nanoseconds patience, std::chrono::nanoseconds interval,
                                const std::function<bool(const std::vector<Json>&)>& progress);
  // What each rank said when it had loaded; null before. Any thread.
  std::vector<Json> loaded() const;
  // To all ranks. Throws CommError.
  void send_all(FrameType type, std::string_view payload);

  // A step whose answer is awaited.
  struct Awaited {
    struct Row {
      RequestId id = 0;
      bool samples = false;
    };
    int64_t step = 0;
    std::vector<Row> rows;
  };
  // Engine thread. The answers of all ranks to the oldest step: sampled tokens of the rank that samples, timings of all.
  // A rank that answers another step, or with tokens of other rows, fails the group.
  ModelRunnerOutput wait_output(const Awaited& awaited, Deadline deadline);
  bool output_ready() const;
  // Of each rank. Any thread.
  std::vector<Times> times() const;
  // The one that has computed longest. Any thread.
  int slowest_rank() const;

  // From now on exits are expected.
  void expect_end();

 private:
  enum class Gravity { kOwnWords = 1, kSilent = 2, kLost = 3, kSaidWhy = 4, kKilled = 5 };

  struct Rank {
    Place place;
    Sender sender;
    Json progress;
    std::optional<Json> loaded;
    std::deque<ModelRunnerOutput> outputs;
    Times times;
    char state = '?';
    Clock::time_point stopped_since{};
    bool ended = false;
  };

  std::string name(int rank) const;
  void handle(int rank, Frame& frame);
  void fail(Gravity gravity, int rank, const std::string& message, bool config = false);
  void fail_stopped(int rank);
  [[noreturn]] void throw_load_failure(std::unique_lock<std::mutex>& lock) const;
  [[noreturn]] void throw_failure(std::unique_lock<std::mutex>& lock) const;
  void answer(int rank, const std::string& key, const std::string& value);
  void store_get(int rank, const std::string& key);
  void count(const StepTiming& timing);
  bool all_answered() const;
  std::string missing_ranks() const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::map<std::string, std::string> store_;
  std::multimap<std::string, int> waiting_;  // key to the ranks that asked for it
  Clock::time_point last_progress_ = Clock::now();
  bool ending_ = false;
  std::optional<Failure> failure_;
  Gravity gravity_ = Gravity::kOwnWords;
  Clock::time_point failed_at_{};
};

}  // namespace tutti

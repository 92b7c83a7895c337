// A node that is not the head: finds the head, joins it, runs the ranks that it is given, forwards their frames. When
// the head ends it waits for the next one. Runs on the main thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/queue.h"
#include "cluster/control_client.h"
#include "cluster/launcher.h"
#include "cluster/node_facts.h"
#include "cluster/rank_processes.h"
#include "cluster/token.h"

namespace tutti {

struct AgentOptions {
  std::string head_address;
  int control_port = kDefaultControlPort;
  TokenFlags token;
  int node_rank = -1;
  int first_rank = -1;
  int num_ranks = 0;
  std::string interface;        // --network-interface
  std::string model;            // this node's path of the model, "" = as on the head
  std::vector<Fact> flags;      // given on this node's command line
  bool once = false;            // end with the head instead of waiting for the next one
  int health_port = 0;          // of this node's /health and /metrics, to be said when it serves; 0 = none
};

// What a node knows about itself.
struct NodeReport {
  struct Rank {
    int rank = 0;
    char state = '?';  // the kernel's letter of its process
    int64_t steps = 0;
  };
  bool joined = false;
  bool serves = false;
  std::vector<Rank> ranks;
};

class NodeAgent {
 public:
  // `signals`: how often somebody has asked this process to end. Once: the head lets running requests finish, then the
  // node leaves; twice: it leaves at once.
  NodeAgent(AgentOptions options, std::function<int()> signals);

  // Until asked to end (or, with `once`, until the head ends). Throws JoinError when the head refuses this node,
  // CommError with `once` when a running cluster is lost.
  void run();

  // Any thread.
  NodeReport report() const;

 private:
  struct Gone {
    std::string why;
  };
  using Event = std::variant<HeadMessage, Gone>;
  enum class Outcome { kHeadEnded, kClusterFailed, kLost, kRetry, kLeft };

  std::optional<TlsIdentity> find_identity();
  bool any_head_answers() const;
  bool head_answers(const TlsIdentity& identity);
  Outcome serve_head(const TlsIdentity& identity);
  Outcome serve_events(Queue<Event>& events);
  std::optional<Outcome> handle(HeadMessage& message);
  void welcome(const Welcome& welcome);
  [[noreturn]] void refused(const Refusal& refusal);
  void start_ranks(const StartRanks& start);
  void stop_ranks(const std::string& reason);
  std::shared_ptr<RankProcesses> ranks() const;
  void replace_ranks(std::shared_ptr<RankProcesses> ranks);
  void forward_to_rank(const RankFrame& frame);
  void watch_own_frame(int rank, const Frame& frame);
  void say_ready() const;
  void heartbeat();
  void say_starting() const;
  bool wants_to_leave();
  void pause(std::chrono::milliseconds duration);
  void announce_wait(const std::string& why);

  const AgentOptions options_;
  const std::function<int()> signals_;
  const NodeSummary summary_;
  std::optional<ClusterToken> token_;
  std::optional<TlsIdentity> identity_;
  std::string waiting_for_;                 // the reason last shown, so that it is shown once
  Clock::time_point waiting_since_{};
  Clock::time_point waiting_said_{};
  std::unique_ptr<ControlClient> client_;
  // Written by the main thread with the mutex held, read on the client's thread too.
  mutable std::mutex ranks_mutex_;
  std::shared_ptr<RankProcesses> ranks_;
  std::vector<int> my_ranks_;
  std::atomic<int64_t> epoch_{0};
  std::atomic<bool> joined_{false};
  std::atomic<bool> serves_{false};
  std::atomic<bool> starting_{false};  // between StartRanks and the start of serving
  mutable std::mutex steps_mutex_;
  std::map<int, int64_t> steps_;            // answered by each rank
  std::string own_address_;
  // Of the ranks' loading; written by the thread that listens to them.
  std::atomic<int> loaded_{0};
  int64_t loaded_bytes_ = 0;
  Clock::time_point load_begin_{};
  Clock::time_point last_heard_{};
  double shutdown_timeout_s_ = 0;           // the head's
  std::optional<Deadline> leave_by_;        // set when the head has been told
};

}  // namespace tutti

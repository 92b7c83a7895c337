// The head of a cluster: admits nodes on the control port, starts ranks here and there, and watches all of them. Lives
// in the process that serves the API. The main thread starts it; while it serves, the engine thread may restart ranks.
// Sessions of nodes and the watch have threads of their own.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "cluster/cluster_executor.h"
#include "cluster/control_server.h"
#include "cluster/launcher.h"
#include "cluster/membership.h"
#include "cluster/network.h"
#include "cluster/rank_config.h"
#include "cluster/rank_group.h"
#include "cluster/rank_processes.h"

namespace tutti {

struct HeadOptions {
  EngineConfig engine;
  int num_nodes = 1;              // --nnodes; 0 = unknown
  int local_ranks = 0;            // 0 = this node's share
  std::string advertised;         // --master-addr, where others reach this node; "" = by the route to them
  std::string interface;          // --network-interface
  int control_port = kDefaultControlPort;
  std::vector<Fact> flags;        // values of the flags that other nodes may repeat
  std::vector<ModelFile> model_files;
  std::string vocabulary;         // for kVocabularyKey
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(6);
  double shutdown_timeout_s = 30;  // --shutdown-timeout
};

class Head final : private ControlHandler {
 public:
  explicit Head(HeadOptions options);
  ~Head() override;

  const MemberNode& self() const { return self_; }
  // The interface of this node's address, "bond0".
  const std::string& interface() const { return own_interface_; }
  bool needs_other_nodes() const;

  // Opens the control port. Throws ConfigError when it is taken.
  void listen(const ClusterToken& token, const TlsIdentity& identity);

  // Waits until every rank has a node. `flag` sets the time, for the lines people read. `interrupted` is asked often;
  // returns false when it said yes. Throws JoinError at the deadline.
  bool wait_for_nodes(Deadline deadline, const char* flag, const std::function<bool()>& interrupted);

  // Starts all ranks in a new epoch; those of an earlier one have been stopped. Throws CommError when a node has left, or
  // is not checked yet.
  std::shared_ptr<RankGroup> start_ranks();
  // The ranks of today; nullptr when none run. Any thread.
  std::shared_ptr<RankGroup> ranks() const;
  // Ends all ranks. `leave`: the head itself ends, so workers wait for another one.
  void stop_ranks(const std::string& reason, bool leave, std::chrono::nanoseconds grace);

  // Called on a session's thread when a node asks to leave in peace. True: the node stays until the ranks are stopped. False,
  // or without a callback: it goes now, its ranks are lost.
  void on_leaving(std::function<bool(const std::string& node)> callback);

  // What apps/ adds to the status report (traffic, latency). Sessions' threads call it; none does any more when this has
  // returned with another one.
  void set_status_source(std::function<Json()> source);
  // For lines of the log: how ranks are spread, "2 nodes".
  std::vector<MemberNode> members() const;

 private:
  void on_message(const std::shared_ptr<NodeSession>& session, NodeMessage message) override;
  void on_gone(const std::shared_ptr<NodeSession>& session) override;
  std::string status_json() override;

  void hello(const std::shared_ptr<NodeSession>& session, const NodeHello& hello);
  void model_files(const std::shared_ptr<NodeSession>& session, const NodeModelFiles& model);
  void node_leaves(const std::shared_ptr<NodeSession>& session, const Leaving& leaving);
  void heard_from_rank(const std::shared_ptr<NodeSession>& session, NodeMessage& message);
  std::optional<Refusal> compare(const NodeHello& hello) const;
  void refuse(const std::shared_ptr<NodeSession>& session, const NodeHello& hello, const Refusal& refusal);
  // `link`: the errors name it, it may be the cause.
  void lose(int node, const std::string& why, bool link = true);
  int node_of_session(const std::shared_ptr<NodeSession>& session) const;
  std::shared_ptr<RankGroup> group_of(int64_t epoch) const;
  RankConfig rank_config(int rank, const MemberNode& node, const std::string& secret) const;
  void announce_wait(Deadline deadline, const char* flag) const;
  std::optional<std::string> other_head() const;
  void look_for_another_head() const;
  std::string unchecked_node() const;
  std::string explain_missing(double waited, const char* flag) const;
  void watch();

  const HeadOptions options_;
  const std::string instance_;            // tells this head from another one of the same cluster
  std::optional<TlsIdentity> identity_;
  std::string cluster_id_;
  std::string token_;       // for the line to type, on a terminal only
  bool show_token_ = false;
  std::string kept_token_file_;
  MemberNode self_;
  std::string own_address_;
  std::string own_interface_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Membership membership_;
  std::map<int, std::shared_ptr<NodeSession>> sessions_;  // by node id
  std::map<const NodeSession*, int> node_ids_;
  std::string last_refusal_;       // for the error at the deadline
  int64_t epoch_ = 0;
  std::shared_ptr<RankGroup> group_;
  std::function<bool(const std::string&)> leaving_callback_;
  bool leaving_ = false;           // this head ends, nodes go in peace
  bool stopping_ = false;

  std::mutex status_mutex_;  // held while the source is asked, which asks this object; never taken with mutex_ held
  std::function<Json()> status_source_;

  std::shared_ptr<RankProcesses> local_ranks_;  // senders of an earlier epoch may still look at it
  std::unique_ptr<ControlServer> server_;
  std::thread watch_;
};

}  // namespace tutti

// A rank's end of the channel to its parent: the configuration, the store for rendezvous, steps in, answers out. Made
// on the rank's main thread, which also runs the worker; an own thread reads the channel, so that the end of the
// cluster is noticed while the worker computes or waits in a collective.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/json.h"
#include "base/queue.h"
#include "cluster/rank_config.h"
#include "comm/store.h"
#include "protocol/channel.h"
#include "protocol/step.h"

namespace tutti {

// Of the head's store: the bytes of the model's tokens, for requests with a grammar.
inline constexpr const char* kVocabularyKey = "vocabulary";

class RankLink {
 public:
  // The descriptor that RankProcesses::spawn() left open for the rank.
  static constexpr int kInheritedFd = 3;

  // Waits for the configuration. Throws CommError when the parent is gone, IoError when what it says is malformed.
  explicit RankLink(int fd);
  ~RankLink();
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  const RankConfig& config() const { return config_; }
  // The head's store.
  Store& store();

  void send_progress(const Json& progress);
  void send_loaded(const Json& loaded);
  void send_output(const ModelRunnerOutput& output);
  // The last word before the process ends: `kind` is "comm" when another rank is the cause, "config" when what was
  // asked for cannot be.
  void send_failed(const std::string& kind, const std::string& message);

  // What all ranks agreed on after loading. Throws CommError when the cluster ends before.
  Json wait_start(Deadline deadline);
  // The next step; nothing when the rank shall end.
  std::optional<SchedulerOutput> next_step();
  // The same without waiting: nothing also when no step is there yet.
  std::optional<SchedulerOutput> poll_step();

  // The cluster has ended, or the parent is gone.
  bool ended();

  // Called once, on the reading thread, when the cluster ends or the parent is gone: frees a worker that waits. An empty
  // callback takes it back; after that it does not run any more. It must not call this object.
  void on_end(std::function<void(const std::string& reason)> callback);

 private:
  class ChannelStore;

  void read_frames();
  void finish(const std::string& reason);

  FrameChannel channel_;
  RankConfig config_;
  std::unique_ptr<ChannelStore> store_;
  Queue<Json> start_;
  Queue<SchedulerOutput> steps_;
  std::mutex end_mutex_;
  std::optional<std::string> end_reason_;
  std::function<void(const std::string&)> end_callback_;
  std::thread reader_;
};

// In the child, first thing: die with the parent. False when the parent has gone already.
bool die_with_parent(int parent_pid);

}  // namespace tutti

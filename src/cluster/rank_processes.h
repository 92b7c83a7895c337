// The rank processes of this node, children of this process: started, listened to, told to end, reaped. The head owns
// one for its own ranks, each node's agent one for its node's.
//
// A rank's process is this same executable with the hidden subcommand `rank`, started by exec (never a bare fork: gRPC
// may run in this process). It dies with its parent: the kernel sends it SIGKILL when the thread that started it ends,
// which is this object's own thread.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/deadline.h"
#include "base/fd.h"
#include "protocol/channel.h"

namespace tutti {

class RankProcesses {
 public:
  struct Callbacks {
    std::function<void(int rank, Frame frame)> on_frame;              // own thread
    std::function<void(int rank, pid_t pid, std::string how)> on_exit;  // own thread; after the rank's last frame
  };

  explicit RankProcesses(Callbacks callbacks);
  // Ends what still runs.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Any thread but this object's own (a callback). Throws IoError. Returns the process id.
  pid_t spawn(int rank, const std::string& config);

  // Any thread. Throws CommError when the rank is gone or does not read.
  void send(int rank, FrameType type, std::string_view payload);

  // Asks all ranks to end, kills those that have not after `grace`, returns when all are reaped.
  void stop(std::chrono::nanoseconds grace);

  // The kernel's state letter of each rank's process ('R', 'S', 'T' when stopped, 'Z').
  std::map<int, char> states() const;

 private:
  struct Child {
    int rank = 0;
    pid_t pid = 0;
    Fd pidfd;
    std::shared_ptr<FrameChannel> channel;
    bool open = true;  // the channel still gives frames
  };

  struct SpawnRequest {
    int rank;
    const std::string& config;
    std::promise<pid_t> pid;
  };

  void listen();
  void start_requested();
  pid_t start(int rank, const std::string& config);
  void drain_channel(Child& child);
  bool reap(Child& child);
  void wake();

  Callbacks callbacks_;
  Fd wake_fd_;
  mutable std::mutex mutex_;
  std::map<int, std::shared_ptr<Child>> children_;  // by rank
  std::deque<SpawnRequest*> spawn_requests_;
  bool stopping_ = false;
  std::condition_variable all_reaped_;
  std::thread listener_;
};

// The state letter of /proc/PID/stat, '?' when the process is gone.
char process_state(pid_t pid);

}  // namespace tutti

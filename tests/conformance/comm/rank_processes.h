// Runs the ranks of a group as processes, forked from a test that has no threads, and collects what
// each has to say.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "comm/comm_factory.h"
#include "comm/folder_store.h"
#include "comm/store.h"

namespace tutti {

struct RankResult {
  std::string report;  // what the body returned, empty when it threw
  std::string error;   // what it threw
  double seconds = 0;  // from start to end
  int signal = 0;      // that ended the process, if one did
};

class RankProcesses {
 public:
  // What a rank does; the number is its own.
  using Body = std::function<std::string(int rank, Store& store)>;

  RankProcesses(int size, const Body& body);
  ~RankProcesses();  // kills who still runs
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Waits until `rank` has called mark_ready(store, rank).
  void wait_ready(int rank);
  FolderStore store() const { return FolderStore(folder_); }
  void signal(int rank, int signal);
  pid_t pid(int rank) const { return processes_[static_cast<size_t>(rank)].pid; }
  // Kills who has not ended within `limit`; such a rank's error is "still running".
  std::vector<RankResult> wait(std::chrono::seconds limit);

 private:
  struct Process {
    pid_t pid = -1;
    int output = -1;  // reading end of a pipe
  };
  void run_rank(int rank, const Body& body, int output);

  std::string folder_;
  std::vector<Process> processes_;
};

constexpr const char* kNoUcx = "built without UCX's headers (libucx-dev)";

// There a test that cannot run fails.
bool in_ci();

void mark_ready(Store& store, int rank);

// A group of processes that all make a communicator with these options and run `body` on it.
RankProcesses::Body with_communicator(int size, CommOptions options,
                                      std::function<std::string(Communicator&, Store&)> body);

}  // namespace tutti

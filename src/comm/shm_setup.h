// How the ranks of one host come to share a segment. Called once by each rank, on the thread that
// makes its communicator; waits for the others until the deadline.
//
// Processes: rank 0 makes the segment and listens on an abstract Unix socket whose random name and
// token it puts into the store. Each rank connects, proves user and token, and hands over the
// reading end of its lifeline: a pipe whose writing end it alone keeps open, so that the kernel
// tells everyone when its process is gone. Rank 0 answers with the memory and all lifelines.
// Threads: rank 0 shares the segment through the store of their process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "comm/shm_segment.h"
#include "comm/store.h"
#include "comm/transport.h"

namespace tutti {

struct ShmLink {
  std::shared_ptr<ShmSegment> segment;
  std::vector<Fd> lifelines;  // reading ends by rank; none for threads
  Fd own_lifeline;            // the writing end of this rank
};

ShmLink share_between_processes(const CommGroup& group, Store& store, Deadline deadline);
ShmLink share_between_threads(const CommGroup& group, InMemoryStore& store, Deadline deadline);

}  // namespace tutti

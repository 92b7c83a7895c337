// Waits of the host for a GPU's stream, and finding out who is late when one takes too long.
#pragma once

#include <string>

#include "base/error.h"
#include "comm/communicator.h"
#include "comm/device_stream.h"
#include "comm/transport.h"

namespace tutti {

// A transport whose calls run on a stream.
class DeviceTransport : public Transport {
 public:
  // Throws the CommError of a queued call that has failed. Worker thread: it may ask the other ranks.
  virtual void check() = 0;
  // The message of a call that did not end: names the call, how long, and the rank that is missing. Worker thread.
  virtual CommError late(const Call& call) = 0;
};

// Returns when the stream has done everything queued so far; throws what check() finds, and at the call's deadline
// late(). Polls for 100 us, then sleeps between polls.
void wait_for_stream(DeviceTransport& transport, DeviceStream& stream, const Call& call);

// Asks the group over `control`, a communicator of its own over CPU memory, who does not answer or is behind: "rank 1
// (node2 gpu 0) ..." `what` is the beginning of the message: "all-reduce 57 over NCCL has not ended after 10.0 s".
CommError name_late_rank(const CommGroup& group, Communicator& control, const std::string& what, int64_t number);

}  // namespace tutti

// Collectives of GPUs through NCCL, inside a host and across hosts. Every call is queued on the stream; a captured call is
// replayed with its graph. The communicator is non-blocking, so no wait for a peer happens inside NCCL's functions.
//
// A watchdog thread asks NCCL for errors of its own and looks whether the oldest call (outside graphs) has passed its
// deadline; then it aborts the communicator, which ends the kernels that wait, and the next check() on the worker thread
// finds out over the control group who is missing. NCCL's sums are the same on every rank, in an order that NCCL chooses
// and keeps for a size.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/communicator.h"
#include "comm/device_stream.h"
#include "comm/device_wait.h"
#include "comm/nccl/nccl_api.h"

namespace tutti {

class NcclTransport final : public DeviceTransport {
 public:
  // All ranks of the group together. `control`: the same group over CPU memory, used by its GPU
  // transports alone. `scratch`: 4 bytes of
  // device memory, for barriers. All are kept by reference and outlive the transport. Throws CommError when a rank does
  // not come before the deadline and DeviceError when NCCL refuses.
  NcclTransport(CommGroup group, const nccl::Api& api, DeviceStream& stream, Communicator& control, void* scratch,
                Deadline setup);
  ~NcclTransport() override;

  std::string_view name() const override { return "nccl"; }
  void all_reduce(const Call& call, void* data, int64_t count, DType dtype) override;
  void all_gather(const Call& call, const void* send, void* recv, size_t bytes) override;
  void reduce_scatter(const Call& call, const void* send, void* recv, int64_t count, DType dtype) override;
  void broadcast(const Call& call, void* data, size_t bytes, int root) override;
  void all_to_all(const Call& call, const void* send, void* recv, size_t bytes) override;
  void send(const Call& call, const void* data, size_t bytes, int to) override;
  void recv(const Call& call, void* data, size_t bytes, int from) override;
  void barrier(const Call& call) override;
  void finish(const Call& call) override;
  void watch(const Call& call) override;
  void abort(const std::string& reason, int peer) override;
  void check() override;
  CommError late(const Call& call) override;

 private:
  struct Queued {
    uint64_t mark;
    std::string what;
    Clock::time_point start;
    Deadline deadline;
  };

  void connect(Deadline setup);
  void share_id(nccl::UniqueId& id);
  // Runs `body`, which calls NCCL, and waits until NCCL has queued it.
  void enqueue(const Call& call, const std::function<nccl::Result(nccl::Comm, nccl::Stream)>& body);
  nccl::Result settled(nccl::Result result, Deadline deadline);
  std::string text_of(nccl::Result result);
  void note_queued(const Call& call, bool always);
  void run_watchdog();
  void look();                                     // one turn of the watchdog
  void fail(const std::string& what, bool final);  // the first one counts; ends what waits
  void abort_comm();

  const CommGroup group_;
  const nccl::Api& api_;
  DeviceStream& stream_;
  Communicator& control_;
  void* const scratch_;

  std::timed_mutex mutex_;  // of the communicator; a call that hangs in NCCL may keep it
  nccl::Comm comm_ = nullptr;
  int64_t number_ = 0;  // of the last call; worker thread

  std::mutex queued_mutex_;
  std::deque<Queued> queued_;  // not known to have ended; some of them, and the latest that was watched

  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::string error_;
  bool error_is_final_ = false;  // it says what there is to say
  int error_peer_ = -1;

  std::mutex stop_mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread watchdog_;
};

}  // namespace tutti

// Collectives over a segment that the ranks of one host share, be they processes ("shm") or threads
// ("in_process").
//
// Every collective is a row of steps. In step s a rank writes its part into its slot of parity s,
// publishes s, and reads the slots of the ranks it needs once they have published s. A rank
// publishes s only after it has read all of s - 1; so a slot may be written again (step s + 2) as
// soon as everyone has published s + 1, which a rank checks before it writes. No step waits twice,
// and there is no closing barrier.
#pragma once

#include <poll.h>

#include <memory>
#include <vector>

#include "comm/algorithm_table.h"
#include "comm/shm_setup.h"
#include "comm/transport.h"

namespace tutti {

class ShmTransport final : public Transport {
 public:
  ShmTransport(CommGroup group, ShmLink link, std::string_view name);
  ~ShmTransport() override;
  // Fills the table of sums; every rank calls it.
  void measure(const Call& call);

  std::string_view name() const override { return name_; }
  void all_reduce(const Call& call, void* data, int64_t count, DType dtype) override;
  void all_gather(const Call& call, const void* send, void* recv, size_t bytes) override;
  void reduce_scatter(const Call& call, const void* send, void* recv, int64_t count,
                      DType dtype) override;
  void broadcast(const Call& call, void* data, size_t bytes, int root) override;
  void all_to_all(const Call& call, const void* send, void* recv, size_t bytes) override;
  void send(const Call& call, const void* data, size_t bytes, int to) override;
  void recv(const Call& call, void* data, size_t bytes, int from) override;
  void barrier(const Call& call) override;
  void finish(const Call&) override {}
  void watch(const Call&) override {}
  void abort(const std::string& reason, int peer) override;

 private:
  // Opens the next step: the own slot may be written when it returns.
  uint32_t begin_step(const Call& call);
  void publish(uint32_t step) { segment_->line(group_.rank).step.publish(step); }
  void wait_step(const Call& call, int peer, uint32_t step) {
    SharedCounter& counter = segment_->line(peer).step;
    if (!counter.reached(step)) wait(call, peer, counter, step);
  }
  void wait_all(const Call& call, uint32_t step);
  void sum(const Call& call, std::byte* data, int64_t count, DType dtype, SumWay way);
  void one_shot(const Call& call, std::byte* data, int64_t count, DType dtype, bool streamed);
  void two_shot(const Call& call, std::byte* data, int64_t count, DType dtype);

  void wait(const Call& call, int peer, SharedCounter& counter, uint32_t target);
  void sleep_until(const Call& call, int peer, SharedCounter& counter, uint32_t target);
  void check_group(const Call& call, int peer, const SharedCounter& counter, uint32_t target);
  std::string late_text(const Call& call, int culprit);

  const CommGroup group_;
  ShmLink link_;
  ShmSegment* const segment_;
  const std::string_view name_;
  AlgorithmTable table_;
  std::vector<pollfd> lifelines_;
  std::vector<const void*> parts_;  // of the sum in hand, by rank
  uint32_t step_ = 0;               // the last step begun
  std::vector<uint32_t> sent_;      // chunks sent to each rank
  std::vector<uint32_t> received_;  // chunks received from each rank
};

}  // namespace tutti

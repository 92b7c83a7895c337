// The communicator that callers hold: one Transport plus what every transport needs. It owns the
// transport, numbers the calls, checks arguments, keeps the statistics, compares the sequence of
// calls between ranks when asked to, and after the first error refuses every further call with the
// same words.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "comm/communicator.h"
#include "comm/transport.h"

namespace tutti {

class GroupCommunicator final : public Communicator {
 public:
  struct Options {
    std::chrono::nanoseconds timeout = std::chrono::seconds(10);
    bool check_sequence =
        false;  // every call first compares its kind, size and type with the other ranks
  };

  // `base`: what the transport stands on, if it does not own it; goes after it.
  GroupCommunicator(CommGroup group, std::unique_ptr<Transport> transport, Options options,
                    std::shared_ptr<void> base = nullptr);

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size; }
  std::string_view transport() const override { return transport_->name(); }

  void all_reduce(void* data, int64_t count, DType dtype) override;
  bool all_reduce_add_norm(const SumAddNorm& what) override;
  const cuda_ipc::IpcGroup* sum_in_kernel(int64_t count) override;
  void all_gather(const void* send, void* recv, size_t bytes) override;
  void reduce_scatter(const void* send, void* recv, int64_t count, DType dtype) override;
  void broadcast(void* data, size_t bytes, int root) override;
  void all_to_all(const void* send, void* recv, size_t bytes) override;
  void send(const void* data, size_t bytes, int to) override;
  void recv(void* data, size_t bytes, int from) override;
  void barrier() override;
  void finish() override;
  void watch() override;

  void set_timeout(std::chrono::nanoseconds timeout) override { options_.timeout = timeout; }
  void abort(const std::string& reason) override;
  CommStats stats() const override;

 private:
  struct Step;  // what one rank is about to do
  template <typename Wait>
  void wait(const Wait& wait);
  template <typename Body>
  void run(const Step& step, const Body& body);
  void compare_with_others(const Call& call, const Step& step);
  void compare_with_peer(const Call& call, const Step& step, int peer);
  void require_same(const Call& call, const Step& mine, const Step& theirs, int peer);
  void break_for_good(const std::string& reason, int peer);
  [[noreturn]] void throw_broken();

  const CommGroup group_;
  const std::shared_ptr<void> base_;
  const std::unique_ptr<Transport> transport_;
  Options options_;
  int64_t number_ = 1;  // of the next call

  // Written by the calling thread, read by whoever shows them.
  std::atomic<int64_t> calls_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> nanoseconds_{0};

  std::atomic<bool> broken_{false};
  std::mutex broken_mutex_;
  std::string broken_reason_;
  int broken_peer_ = -1;
};

}  // namespace tutti

// Collectives between ranks of different hosts, over TCP or another wire. Every rank has connections with
// every other, so each collective is one exchange, or two: parts travel directly, and each sum is
// made in rank order where it is needed.
#pragma once

#include <memory>
#include <vector>

#include "comm/algorithm_table.h"
#include "comm/comm_codec.h"
#include "comm/transport.h"
#include "comm/wire.h"

namespace tutti {

class TcpTransport final : public Transport {
 public:
  // `comm_dtype`: how float sums are encoded on their way.
  TcpTransport(CommGroup group, std::unique_ptr<Wire> wire, CommDType comm_dtype);
  // Fills the table of sums over three and more ranks; every rank calls it.
  void measure(const Call& call);

  std::string_view name() const override { return wire_->name(); }
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
  void abort(const std::string& reason, int peer) override { wire_->abort(reason, peer); }

 private:
  // Between two ranks: each sends everything, and sums what has both come and gone while the rest
  // is on its way.
  void exchange_and_sum(const Call& call, std::byte* data, int64_t count, DType dtype);
  // Each rank gets all parts and sums everything: one exchange, for small messages.
  void one_shot(const Call& call, std::byte* data, int64_t count, DType dtype);
  // Each rank gets the parts of its slice, and all get its sum: two exchanges, for large messages.
  void two_shot(const Call& call, std::byte* data, int64_t count, DType dtype);

  // The same in encoded form; one_shot serves two ranks as well.
  void encoded_sum(const Call& call, void* data, int64_t count, DType dtype);
  void encoded_one_shot(const Call& call, float* data, int64_t count);
  void encoded_two_shot(const Call& call, float* data, int64_t count);
  CodecBlock* blocks(int64_t count) {
    return reinterpret_cast<CodecBlock*>(scratch(codec_bytes(count)));
  }

  void add_send(int to, const void* data, size_t bytes) {
    add(to, true, const_cast<void*>(data), bytes);
  }
  void add_recv(int from, void* data, size_t bytes) { add(from, false, data, bytes); }
  void add(int peer, bool sending, void* data, size_t bytes);
  void exchange(const Call& call);
  std::byte* scratch(size_t bytes);
  // The other ranks, the next one first, so that not all begin with the same.
  template <typename Body>
  void for_others(const Body& body) {
    for (int i = 1; i < group_.size; ++i) body((group_.rank + i) % group_.size);
  }

  const CommGroup group_;
  const CommDType comm_dtype_;
  const std::unique_ptr<Wire> wire_;
  AlgorithmTable table_;
  std::vector<Transfer> transfers_;  // of the exchange being put together
  std::vector<std::byte> scratch_;
  std::vector<const void*> parts_;  // of the sum in hand, by rank
  std::vector<const CodecBlock*> encoded_parts_;
  std::vector<float> floats_;  // a sum of halves on its way
};

}  // namespace tutti

// The wire over TCP: the connections of a mesh are polled for a short while and then slept on. It
// also tells a lost peer from a late one and a stopped process from a cut link, and passes the
// reason of an abort to the other ranks.
//
// One thread exchanges at a time; abort() from any thread.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/tcp_mesh.h"
#include "comm/wire.h"

namespace tutti {

class TcpWire final : public Wire {
 public:
  TcpWire(const CommGroup& group, std::vector<TcpPeer> peers);
  ~TcpWire() override;  // says goodbye, so that peers can tell leaving from dying
  TcpWire(const TcpWire&) = delete;
  TcpWire& operator=(const TcpWire&) = delete;

  std::string_view name() const override { return "tcp"; }
  int num_streams() const override { return num_streams_; }
  void exchange(const Call& call, std::span<Transfer> transfers,
                const std::function<void()>& on_progress = {}) override;
  void abort(const std::string& reason, int peer) override;

 private:
  struct ControlState;

  // Moves what can be moved now; the number of bytes.
  size_t pass(const Call& call, std::span<Transfer> transfers);
  void sleep(const Call& call, std::span<const Transfer> transfers);
  // Reads what the control connections brought; throws on an abort or a lost peer.
  void read_control(const Call& call);
  void read_control_of(const Call& call, int peer);
  [[noreturn]] void throw_lost(const Call& call, int peer, int error);
  [[noreturn]] void throw_late(const Call& call, std::span<const Transfer> transfers);
  // The transfer that holds the call up, a receive before a send.
  static const Transfer& first_unfinished(std::span<const Transfer> transfers);
  // Who really holds it up: a rank that itself waits for another said so at half of its time.
  int culprit(const Call& call, std::span<const Transfer> transfers) const;
  void announce_wait(const Call& call, std::span<const Transfer> transfers);
  void throw_if_aborted();
  void send_control(uint32_t kind, const std::string& text, int peer);
  std::string where(const Call& call, int peer) const;

  const CommGroup group_;
  std::vector<TcpPeer> peers_;
  std::vector<ControlState> control_;
  int num_streams_ = 1;
  int64_t announced_ = 0;        // number of the last call whose long wait the others were told of
  Fd wake_;                      // an eventfd that abort() raises
  std::vector<pollfd> entries_;  // of sleep(), kept for its memory

  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;
  std::string abort_reason_;
  int abort_peer_ = -1;
};

}  // namespace tutti

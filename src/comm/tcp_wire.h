// Moves bytes over the connections of a mesh: any number of sends and receives at once, polled for
// a short while and then slept on, until all are done, the deadline passes or a peer is lost. It
// also tells a lost peer from a late one and a stopped process from a cut link, and passes the
// reason of an abort to the other ranks.
//
// One thread exchanges at a time; abort() from any thread.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <limits>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/tcp_mesh.h"
#include "comm/transport.h"

namespace tutti {

// One direction of one stream. A receive may go round in a window of memory that the caller empties
// while the rest is on its way: it stops at `limit`, which on_progress moves on.
struct TcpTransfer {
  int peer;
  int stream;
  bool sending;
  std::byte* data;  // not written when sending
  size_t bytes;
  size_t done = 0;
  size_t window = kNone;  // bytes that `data` holds
  size_t limit = kNone;   // bytes that may be done by now

  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  size_t left() const { return bytes - done; }
  // What may move next in one piece.
  size_t movable() const { return std::min({left(), limit - done, window - done % window}); }
};

class TcpWire {
 public:
  TcpWire(const CommGroup& group, std::vector<TcpPeer> peers);
  ~TcpWire();  // says goodbye, so that peers can tell leaving from dying
  TcpWire(const TcpWire&) = delete;
  TcpWire& operator=(const TcpWire&) = delete;

  int num_streams() const { return num_streams_; }
  // Runs all transfers to their end. `on_progress`, if any, is called after each pass in which
  // bytes moved.
  void exchange(const Call& call, std::span<TcpTransfer> transfers,
                const std::function<void()>& on_progress = {});
  void abort(const std::string& reason, int peer);

 private:
  struct ControlState;

  // Moves what can be moved now; the number of bytes.
  size_t pass(const Call& call, std::span<TcpTransfer> transfers);
  void sleep(const Call& call, std::span<const TcpTransfer> transfers);
  // Reads what the control connections brought; throws on an abort or a lost peer.
  void read_control(const Call& call);
  void read_control_of(const Call& call, int peer);
  [[noreturn]] void throw_lost(const Call& call, int peer, int error);
  [[noreturn]] void throw_late(const Call& call, std::span<const TcpTransfer> transfers);
  // The transfer that holds the call up, a receive before a send.
  static const TcpTransfer& first_unfinished(std::span<const TcpTransfer> transfers);
  // Who really holds it up: a rank that itself waits for another said so at half of its time.
  int culprit(const Call& call, std::span<const TcpTransfer> transfers) const;
  void announce_wait(const Call& call, std::span<const TcpTransfer> transfers);
  void throw_if_aborted();
  void send_control(uint32_t kind, const std::string& text, int peer);
  std::string where(const Call& call, int peer) const;

  const CommGroup& group_;
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

// What a transport between nodes stands on: connections of every rank with every other, over which any number of sends
// and receives run at once until all are done, the deadline passes or a peer is lost.
//
// One thread exchanges at a time; abort() from any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "comm/transport.h"

namespace tutti {

// One direction of one stream. A receive may go round in a window of memory that the caller empties
// while the rest is on its way: it stops at `limit`, which on_progress moves on.
struct Transfer {
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

class Wire {
 public:
  virtual ~Wire() = default;

  virtual std::string_view name() const = 0;  // "tcp", "ucx"
  // Streams of a pair that may share a large message.
  virtual int num_streams() const = 0;
  // Runs all transfers to their end. `on_progress`, if any, is called after each pass in which
  // bytes moved. Throws CommError.
  virtual void exchange(const Call& call, std::span<Transfer> transfers,
                        const std::function<void()>& on_progress = {}) = 0;
  virtual void abort(const std::string& reason, int peer) = 0;
};

}  // namespace tutti

// Framed messages between a rank's process and the process that started it (the head, or a node's agent), over a
// connected socket. The agent forwards frames of remote ranks to the head as they are, so this is also the vocabulary
// of the head's view of a rank.
//
// send() from any thread, receive() from one thread. Neither blocks for ever: both take a deadline.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"

namespace tutti {

enum class FrameType : uint8_t {
  // to the rank
  kConfig = 1,    // JSON: who it is, the engine's configuration (cluster/rank_config.h)
  kStart = 2,     // JSON: what all ranks agreed on after loading (KV blocks)
  kStep = 3,      // wire: SchedulerOutput
  kStoreValue = 4,  // key, value: the answer to kStoreGet
  kEnd = 5,       // finish and exit with code 0
  // from the rank
  kProgress = 16,   // JSON: bytes of weights loaded
  kLoaded = 17,     // JSON: memory, KV blocks that fit
  kOutput = 18,     // wire: ModelRunnerOutput
  kFailed = 19,     // text: why the rank gives up; it exits afterwards
  kStoreSet = 20,   // key, value
  kStoreGet = 21,   // key
};

struct Frame {
  FrameType type{};
  std::string payload;
};

class FrameChannel {
 public:
  static constexpr size_t kMaxPayload = 256u << 20;

  // Owns `fd`, a connected stream socket, and makes it non-blocking.
  explicit FrameChannel(int fd);
  ~FrameChannel();
  FrameChannel(const FrameChannel&) = delete;
  FrameChannel& operator=(const FrameChannel&) = delete;

  // Throws CommError when the other end is gone or does not take the bytes in time.
  void send(FrameType type, std::string_view payload, Deadline deadline);
  // Nothing when the deadline passed. Throws CommError when the other end is gone, IoError on a malformed frame.
  std::optional<Frame> receive(Deadline deadline);
  // Ends waits of other threads; later calls throw.
  void shut_down();

  int fd() const { return fd_; }

 private:
  std::optional<Frame> take_frame();

  int fd_;
  std::mutex send_mutex_;
  std::string received_;   // bytes of frames not yet complete
  size_t consumed_ = 0;    // of received_
};

// A connected pair of stream sockets, close-on-exec. Throws IoError.
std::pair<int, int> make_socket_pair();

// "key" and "value" in one payload, for the store's frames. unpack throws IoError.
std::string pack_pair(std::string_view key, std::string_view value);
std::pair<std::string, std::string> unpack_pair(std::string_view payload);

}  // namespace tutti

// One I/O thread of the HTTP server, as the rest of the server sees it. Everything that belongs to a
// connection (its request, its answer, its detokenizers) is touched on the connection's loop only, so none of
// it needs a lock.
#pragma once

#include <chrono>
#include <functional>

namespace tutti {

class EventLoop {
 public:
  virtual ~EventLoop() = default;
  // Runs `task` on the loop's thread, after what was posted before. Thread-safe. Tasks must not throw or
  // block.
  virtual void post(std::function<void()> task) = 0;
  virtual void post_after(std::chrono::milliseconds delay, std::function<void()> task) = 0;
};

}  // namespace tutti

// For tests: a table of functions that behaves as NCCL does, over CPU memory and between threads, and a stream whose work
// a thread of its own does in order. What goes wrong is chosen per test.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>

#include "comm/device_stream.h"
#include "comm/nccl/nccl_api.h"

namespace tutti::nccl {

// What the fake library does. Set before the ranks start; one test at a time.
struct FakeFaults {
  std::chrono::milliseconds delay{0};   // of every collective, on the stream
  std::set<int> never_connect;          // these ranks stay "in progress" for ever
  std::set<int> refuse_connection;      // these get an internal error
  int hang_from_call = -1;              // every rank's call with this index (from 0), and later ones, never end
  int async_error_from_call = -1;       // after that many calls every rank's CommGetAsyncError says "remote error"
  bool no_id = false;                   // GetUniqueId fails
};

const Api& fake_library(const FakeFaults& faults);
// Communicators that the fake has made and not yet freed.
int fake_comms_alive();

class FakeStream final : public DeviceStream {
 public:
  FakeStream();
  ~FakeStream() override;
  void* handle() const override;
  bool capturing() const override { return false; }
  uint64_t mark() override;
  bool reached(uint64_t mark) override;
  void copy(void* to, const void* from, size_t bytes) override;
  void push(std::function<void()> work);
  uint64_t ahead() const;  // work queued and not done

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::nccl

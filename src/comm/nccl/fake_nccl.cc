#include "comm/nccl/fake_nccl.h"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "comm/reduce.h"

namespace tutti::nccl {
namespace {

// One collective on its way: what each rank has brought.
struct Meeting {
  std::map<int, const void*> sends;
  int left = 0;
};

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Meeting> meetings;
};

struct FakeComm {
  std::shared_ptr<World> world;
  int rank = 0;
  int size = 0;
  int calls = 0;
  int collectives = 0;
  std::map<std::tuple<int, int, bool>, int> messages;  // {from, to, is a send}: how many so far
  std::shared_ptr<std::atomic<bool>> aborted = std::make_shared<std::atomic<bool>>(false);
};

FakeFaults faults;
std::mutex worlds_mutex;
std::map<std::string, std::shared_ptr<World>> worlds;
std::atomic<int> next_id{1};
std::atomic<int> alive{0};

FakeComm& of(Comm comm) { return *reinterpret_cast<FakeComm*>(comm); }
FakeStream& of(Stream stream) { return *static_cast<FakeStream*>(stream); }

size_t bytes_of(int type) {
  switch (type) {
    case kUint8: return 1;
    case kFloat16:
    case kBfloat16: return 2;
    case kInt32:
    case kFloat32: return 4;
    default: return 8;
  }
}

DType dtype_of(int type) {
  switch (type) {
    case kFloat16: return DType::kF16;
    case kBfloat16: return DType::kBF16;
    case kInt32: return DType::kI32;
    case kFloat32: return DType::kF32;
    default: return DType::kI64;
  }
}

// All of `ranks` bring a pointer, `body` runs on each with everybody's, and nobody leaves before all have run it. Whoever is
// aborted takes its pointer away, what it points to ends with it: the others wait until they are aborted, too.
using Body = std::function<void(const std::map<int, const void*>& sends)>;
Result meet(Comm handle, Stream stream, const std::string& key, int ranks, const void* send, const Body& body) {
  FakeComm& comm = of(handle);
  const bool hangs = faults.hang_from_call >= 0 && comm.calls >= faults.hang_from_call;
  ++comm.calls;
  of(stream).push([world = comm.world, rank = comm.rank, aborted = comm.aborted, key, ranks, send, body, hangs] {
    std::this_thread::sleep_for(faults.delay);
    std::unique_lock lock(world->mutex);
    Meeting& meeting = world->meetings[key];
    meeting.sends[rank] = send;
    world->changed.notify_all();
    const auto wait_for = [&](const auto& ready) {
      world->changed.wait(lock, [&] { return *aborted || (!hangs && ready()); });
      return !*aborted;
    };
    bool met = wait_for([&] { return static_cast<int>(meeting.sends.size()) == ranks; });
    if (met) {
      body(meeting.sends);
      ++meeting.left;
      world->changed.notify_all();
      met = wait_for([&] { return meeting.left == ranks; });
    }
    if (!met) meeting.sends.erase(rank);
  });
  return kInProgress;  // as a non-blocking communicator says; CommGetAsyncError then says success
}

std::string next_key(Comm comm) { return "call " + std::to_string(of(comm).collectives++); }

Result get_version(int* version) {
  *version = 22809;
  return kSuccess;
}

Result get_unique_id(UniqueId* id) {
  if (faults.no_id) return 2;
  std::memset(id, 0, sizeof *id);
  const std::string name = "world " + std::to_string(next_id++);
  std::memcpy(id->bytes, name.data(), name.size());
  return kSuccess;
}

Result comm_init(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  CHECK_EQ(config->blocking, 0);
  auto* made = new FakeComm;
  ++alive;
  {
    std::lock_guard lock(worlds_mutex);
    auto& world = worlds[id.bytes];
    if (world == nullptr) world = std::make_shared<World>();
    made->world = world;
  }
  made->rank = rank;
  made->size = size;
  *comm = reinterpret_cast<Comm>(made);
  return kInProgress;
}

Result async_error(Comm comm, Result* error) {
  const FakeComm& fake = of(comm);
  *error = kSuccess;
  if (faults.never_connect.count(fake.rank) > 0) *error = kInProgress;
  if (faults.refuse_connection.count(fake.rank) > 0) *error = 3;
  if (faults.async_error_from_call >= 0 && fake.calls >= faults.async_error_from_call) *error = 6;
  return kSuccess;
}

Result comm_abort(Comm comm) {
  FakeComm* fake = &of(comm);
  {
    std::lock_guard lock(fake->world->mutex);
    *fake->aborted = true;
  }
  fake->world->changed.notify_all();
  delete fake;
  --alive;
  return kSuccess;
}

const char* error_string(Result result) {
  return result == 6 ? "remote process exited or there was a network error" : result == 3 ? "internal error" : "unhandled system error";
}
const char* last_error(Comm) { return "the fake's last words"; }

Result all_reduce(const void* send, void* recv, size_t count, int type, int op, Comm comm, Stream stream) {
  CHECK_EQ(op, kSum);
  const int size = of(comm).size;
  // A copy: with an in-place call the first rank to write would change what the others still read.
  auto own = std::make_shared<std::vector<std::byte>>(count * bytes_of(type));
  std::memcpy(own->data(), send, own->size());
  return meet(comm, stream, next_key(comm), size, own->data(), [=](const std::map<int, const void*>& sends) {
    std::vector<const void*> parts;
    for (const auto& [rank, data] : sends) parts.push_back(data);
    sum_in_order(recv, parts.data(), size, static_cast<int64_t>(count), dtype_of(type));
    (void)own;
  });
}

Result all_gather(const void* send, void* recv, size_t count, int type, Comm comm, Stream stream) {
  const size_t bytes = count * bytes_of(type);
  return meet(comm, stream, next_key(comm), of(comm).size, send, [=](const std::map<int, const void*>& sends) {
    for (const auto& [rank, data] : sends)
      std::memmove(static_cast<std::byte*>(recv) + static_cast<size_t>(rank) * bytes, data, bytes);
  });
}

Result reduce_scatter(const void* send, void* recv, size_t count, int type, int op, Comm comm, Stream stream) {
  CHECK_EQ(op, kSum);
  const int size = of(comm).size, rank = of(comm).rank;
  const size_t bytes = count * bytes_of(type);
  return meet(comm, stream, next_key(comm), size, send, [=](const std::map<int, const void*>& sends) {
    std::vector<const void*> parts;
    for (const auto& [from, data] : sends) parts.push_back(static_cast<const std::byte*>(data) + static_cast<size_t>(rank) * bytes);
    sum_in_order(recv, parts.data(), size, static_cast<int64_t>(count), dtype_of(type));
  });
}

Result broadcast(const void* send, void* recv, size_t count, int type, int root, Comm comm, Stream stream) {
  const size_t bytes = count * bytes_of(type);
  return meet(comm, stream, next_key(comm), of(comm).size, send, [=](const std::map<int, const void*>& sends) {
    if (recv != sends.at(root)) std::memcpy(recv, sends.at(root), bytes);
  });
}

// Grouped messages are queued when the group ends, as they may wait for each other.
thread_local std::vector<std::function<void()>>* grouped = nullptr;
thread_local std::vector<std::function<void()>> group_storage;

Result group_start() {
  group_storage.clear();
  grouped = &group_storage;
  return kSuccess;
}

// The sends of a group come first: the receives wait for those of the others.
Result group_end() {
  grouped = nullptr;
  for (const auto& launch : group_storage) launch();
  group_storage.clear();
  return kSuccess;
}

Result message(const void* send, void* recv, size_t bytes, int from, int to, Comm comm, Stream stream) {
  FakeComm& fake = of(comm);
  const bool is_send = send != nullptr;
  const int number = fake.messages[{from, to, is_send}]++;
  const std::string key = "message " + std::to_string(number) + " from " + std::to_string(from) + " to " + std::to_string(to);
  ++fake.calls;
  of(stream).push([world = fake.world, aborted = fake.aborted, key, send, recv, bytes, is_send, from] {
    std::unique_lock lock(world->mutex);
    Meeting& meeting = world->meetings[key];
    if (is_send) {
      auto* copy = new std::vector<std::byte>(bytes);  // freed by the receiver
      std::memcpy(copy->data(), send, bytes);
      meeting.sends[from] = copy;
      world->changed.notify_all();
      return;
    }
    world->changed.wait(lock, [&] { return *aborted || meeting.sends.count(from) > 0; });
    if (meeting.sends.count(from) == 0) return;
    const auto* copy = static_cast<const std::vector<std::byte>*>(meeting.sends[from]);
    std::memcpy(recv, copy->data(), bytes);
    delete copy;
  });
  return kInProgress;
}

Result send_message(const void* data, size_t count, int type, int peer, Comm comm, Stream stream) {
  const size_t bytes = count * bytes_of(type);
  const auto launch = [=] { return message(data, nullptr, bytes, of(comm).rank, peer, comm, stream); };
  if (grouped == nullptr) return launch();
  grouped->insert(grouped->begin(), [=] { (void)launch(); });
  return kSuccess;
}

Result recv_message(void* data, size_t count, int type, int peer, Comm comm, Stream stream) {
  const size_t bytes = count * bytes_of(type);
  const auto launch = [=] { return message(nullptr, data, bytes, peer, of(comm).rank, comm, stream); };
  if (grouped == nullptr) return launch();
  grouped->push_back([=] { (void)launch(); });
  return kSuccess;
}

constexpr Api kFake = {get_version,  get_unique_id, comm_init,  async_error,    comm_abort, error_string, last_error,  group_start,
                       group_end,    all_reduce,    all_gather, reduce_scatter, broadcast,  send_message, recv_message};

}  // namespace

const Api& fake_library(const FakeFaults& with) {
  faults = with;
  return kFake;
}

int fake_comms_alive() { return alive; }

struct FakeStream::Impl {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> work;
  std::array<uint64_t, 64> marks{};  // work queued before it; as on a GPU, a mark stands for the 64th after it, too
  uint64_t last_mark = 0;
  uint64_t queued = 0;
  uint64_t done = 0;
  bool stop = false;
  std::thread thread;
};

FakeStream::FakeStream() : impl_(std::make_unique<Impl>()) {
  impl_->thread = std::thread([impl = impl_.get()] {
    std::unique_lock lock(impl->mutex);
    for (;;) {
      impl->changed.wait(lock, [&] { return impl->stop || !impl->work.empty(); });
      if (impl->work.empty()) return;
      const auto work = std::move(impl->work.front());
      impl->work.pop_front();
      lock.unlock();
      work();
      lock.lock();
      ++impl->done;
    }
  });
}

FakeStream::~FakeStream() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

void* FakeStream::handle() const { return const_cast<FakeStream*>(this); }

uint64_t FakeStream::mark() {
  std::lock_guard lock(impl_->mutex);
  ++impl_->last_mark;
  impl_->marks[impl_->last_mark % impl_->marks.size()] = impl_->queued;
  return impl_->last_mark;
}

bool FakeStream::reached(uint64_t mark) {
  std::lock_guard lock(impl_->mutex);
  return impl_->done >= impl_->marks[mark % impl_->marks.size()];
}

uint64_t FakeStream::ahead() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->queued - impl_->done;
}

void FakeStream::push(std::function<void()> work) {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->work.push_back(std::move(work));
    ++impl_->queued;
  }
  impl_->changed.notify_all();
}

void FakeStream::copy(void* to, const void* from, size_t bytes) {
  push([=] { std::memmove(to, from, bytes); });
}

}  // namespace tutti::nccl

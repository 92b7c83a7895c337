#include "comm/tcp_wire.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "comm/futex.h"

namespace tutti {
namespace {

enum ControlKind : uint32_t { kAbort = 1, kGoodbye = 2, kWaiting = 3 };

struct ControlFrame {
  uint32_t kind;
  int32_t peer;
  char text[1016];
};
static_assert(sizeof(ControlFrame) == 1024);

// What one pass moves at most in one direction of a stream: the peer reads it while it is in the
// cache.
constexpr size_t kPassBytes = size_t{128} << 10;
// After a loss, how long the reason that another rank may have sent is waited for.
constexpr std::chrono::milliseconds kReasonTime{50};
// A host whose kernel has acknowledged nothing for this long, probes once a second included, is out
// of reach.
constexpr unsigned kSilentHostMs = 2500;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

struct TcpWire::ControlState {
  std::array<std::byte, sizeof(ControlFrame)> buffer;
  size_t done = 0;
  bool left = false;  // said goodbye
  bool open = true;
  int waits_for = -1;  // what it said last, and when
  Clock::time_point said{};
};

TcpWire::TcpWire(const CommGroup& group, std::vector<TcpPeer> peers)
    : group_(group),
      peers_(std::move(peers)),
      control_(peers_.size()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw CommError(fmt::format("eventfd: {}", std::strerror(errno)));
  control_[static_cast<size_t>(group_.rank)].open = false;
  for (const TcpPeer& peer : peers_)
    num_streams_ = std::max(num_streams_, static_cast<int>(peer.streams.size()));
}

TcpWire::~TcpWire() { send_control(kGoodbye, "", -1); }

void TcpWire::exchange(const Call& call, std::span<Transfer> transfers,
                       const std::function<void()>& on_progress) {
  auto spin_end = Clock::now() + group_.spin;
  for (;;) {
    const size_t moved = pass(call, transfers);
    if (moved > 0 && on_progress) on_progress();
    if (std::all_of(transfers.begin(), transfers.end(),
                    [](const Transfer& t) { return t.left() == 0; }))
      return;
    throw_if_aborted();
    const auto now = Clock::now();
    if (now >= call.deadline.instant()) {
      read_control(call);  // another rank may have found the reason already
      throw_late(call, transfers);
    }
    if (moved > 0) {
      spin_end = now + group_.spin;
    } else if (now < spin_end) {
      cpu_pause();
    } else {
      sleep(call, transfers);
      spin_end = Clock::now();  // data is there, or the next pass finds none and sleeps again
    }
  }
}

size_t TcpWire::pass(const Call& call, std::span<Transfer> transfers) {
  size_t moved = 0;
  for (Transfer& t : transfers) {
    if (t.movable() == 0) continue;
    const int fd = peers_[static_cast<size_t>(t.peer)].streams[static_cast<size_t>(t.stream)].get();
    const size_t bytes = std::min(t.movable(), kPassBytes);
    std::byte* place = t.data + t.done % t.window;
    const ssize_t n =
        t.sending ? ::send(fd, place, bytes, MSG_NOSIGNAL) : ::recv(fd, place, bytes, 0);
    if (n > 0) {
      t.done += static_cast<size_t>(n);
      moved += static_cast<size_t>(n);
    } else if (n == 0 || !would_block(errno)) {
      throw_lost(call, t.peer, n == 0 ? 0 : errno);
    }
  }
  return moved;
}

void TcpWire::sleep(const Call& call, std::span<const Transfer> transfers) {
  entries_.clear();
  entries_.push_back({wake_.get(), POLLIN, 0});
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (control_[r].open) entries_.push_back({peers_[r].control.get(), POLLIN, 0});
  }
  const size_t num_control = entries_.size();
  for (const Transfer& t : transfers) {
    if (t.movable() == 0) continue;
    const int fd = peers_[static_cast<size_t>(t.peer)].streams[static_cast<size_t>(t.stream)].get();
    entries_.push_back({fd, static_cast<short>(t.sending ? POLLOUT : POLLIN), 0});
  }
  auto left = call.deadline.left();
  if (announced_ != call.number) {
    const auto until_half =
        (call.deadline.instant() - call.start) / 2 - (Clock::now() - call.start);
    if (until_half.count() <= 0) announce_wait(call, transfers);
    left = std::min(left,
                    std::max<std::chrono::nanoseconds>(until_half, std::chrono::milliseconds(1)));
  }
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
  const int ready = ::ppoll(entries_.data(), entries_.size(), &timeout, nullptr);
  if (ready < 0 && errno != EINTR) throw CommError(fmt::format("poll: {}", std::strerror(errno)));
  const bool control_spoke =
      std::any_of(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(num_control),
                  [](const pollfd& e) { return e.revents != 0; });
  if (ready > 0 && control_spoke) {
    throw_if_aborted();
    read_control(call);
  }
}

void TcpWire::read_control(const Call& call) {
  // Reasons first: a rank that was told why it must stop hangs up as well.
  std::optional<int> lost;
  for (int r = 0; r < group_.size; ++r) {
    ControlState& state = control_[static_cast<size_t>(r)];
    if (!state.open) continue;
    read_control_of(call, r);
    if (!state.open && !state.left && !lost) lost = r;
  }
  if (lost) throw_lost(call, *lost, 0);
}

void TcpWire::read_control_of(const Call&, int peer) {
  ControlState& state = control_[static_cast<size_t>(peer)];
  const int fd = peers_[static_cast<size_t>(peer)].control.get();
  for (;;) {
    const ssize_t n =
        ::recv(fd, state.buffer.data() + state.done, state.buffer.size() - state.done, 0);
    if (n <= 0) {
      if (n == 0 || !would_block(errno)) state.open = false;
      return;
    }
    state.done += static_cast<size_t>(n);
    if (state.done < state.buffer.size()) continue;
    state.done = 0;
    ControlFrame frame;
    std::memcpy(&frame, state.buffer.data(), sizeof frame);
    frame.text[sizeof frame.text - 1] = '\0';
    if (frame.kind == kGoodbye) state.left = true;
    if (frame.kind == kWaiting && frame.peer >= 0 && frame.peer < group_.size) {
      state.waits_for = frame.peer;
      state.said = Clock::now();
    }
    if (frame.kind == kAbort)
      throw CommError(frame.text, frame.peer < group_.size ? frame.peer : -1);
  }
}

std::string TcpWire::where(const Call& call, int peer) const {
  return fmt::format("in {} over {}", describe(call), peers_[static_cast<size_t>(peer)].link);
}

void TcpWire::throw_lost(const Call& call, int peer, int error) {
  ControlState& state = control_[static_cast<size_t>(peer)];
  const Deadline patience = Deadline::after(kReasonTime);
  while (!patience.passed()) {
    for (int r = 0; r < group_.size; ++r) {
      if (control_[static_cast<size_t>(r)].open) read_control_of(call, r);
    }
    if (state.left) break;
    ::poll(nullptr, 0, 5);
  }
  throw_if_aborted();
  const std::string& label = group_.label(peer);
  if (state.left)
    throw CommError(fmt::format("{}: left the group {}", label, where(call, peer)), peer);
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
    throw CommError(fmt::format("{}: {} {}; its machine is down or the link is cut", label,
                                std::strerror(error), where(call, peer)),
                    peer);
  }
  const char* what = error == 0       ? "connection closed"
                     : error == EPIPE ? "connection reset"
                                      : std::strerror(error);
  throw CommError(
      fmt::format("{}: {} {}; its process ended or something between cut the connection", label,
                  error == ECONNRESET ? "connection reset" : what, where(call, peer)),
      peer);
}

const Transfer& TcpWire::first_unfinished(std::span<const Transfer> transfers) {
  const Transfer* first = nullptr;
  for (const Transfer& t : transfers) {
    if (t.left() > 0 && (first == nullptr || (first->sending && !t.sending))) first = &t;
  }
  CHECK(first != nullptr);
  return *first;
}

void TcpWire::announce_wait(const Call& call, std::span<const Transfer> transfers) {
  announced_ = call.number;
  send_control(kWaiting, describe(call), culprit(call, transfers));
}

int TcpWire::culprit(const Call& call, std::span<const Transfer> transfers) const {
  const auto waits_for = [&](int rank) {
    const ControlState& state = control_[static_cast<size_t>(rank)];
    return state.said >= call.start ? state.waits_for : -1;
  };
  for (const Transfer& t : transfers) {
    if (t.left() > 0 && !t.sending && waits_for(t.peer) < 0) return t.peer;
  }
  int rank = first_unfinished(transfers).peer;
  for (int steps = 0; steps < group_.size; ++steps) {
    const int next = waits_for(rank);
    if (next < 0 || next == group_.rank) break;
    rank = next;
  }
  return rank;
}

void TcpWire::throw_late(const Call& call, std::span<const Transfer> transfers) {
  const int rank = culprit(call, transfers);
  const auto of_rank =
      std::find_if(transfers.begin(), transfers.end(),
                   [rank](const Transfer& t) { return t.peer == rank && t.left() > 0; });
  std::string progress = "others wait for it";
  bool moved = false;
  if (of_rank != transfers.end()) {
    moved = of_rank->done > 0;
    progress = fmt::format("{} of {} bytes {}", of_rank->done, of_rank->bytes,
                           of_rank->sending ? "taken" : "received");
  }
  tcp_info info{};
  socklen_t length = sizeof info;
  const int stream = of_rank != transfers.end() ? of_rank->stream : 0;
  const int fd = peers_[static_cast<size_t>(rank)].streams[static_cast<size_t>(stream)].get();
  const bool known = ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0;
  std::string why = "its process is stopped or busy, its machine answers";
  if (known && info.tcpi_last_ack_recv > kSilentHostMs) {
    why = fmt::format("its machine has acknowledged nothing for {:.1f} s: link cut or machine down",
                      1e-3 * info.tcpi_last_ack_recv);
  } else if (moved) {
    why = "bytes moved, but too slowly or not to the end";
  }
  throw CommError(fmt::format("{}: late, {} in {:.1f} s {}; {}", group_.label(rank), progress,
                              seconds_in(call), where(call, rank), why),
                  rank);
}

void TcpWire::throw_if_aborted() {
  if (!aborted_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(abort_mutex_);
  throw CommError(abort_reason_, abort_peer_);
}

void TcpWire::abort(const std::string& reason, int peer) {
  {
    std::lock_guard lock(abort_mutex_);
    abort_reason_ = reason;
    abort_peer_ = peer;
  }
  aborted_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof one) != sizeof one) {
    // The counter is full: the poll is awake already.
  }
  send_control(kAbort, reason, peer);
}

// Best effort: a peer that cannot take a kilobyte is past being told.
void TcpWire::send_control(uint32_t kind, const std::string& text, int peer) {
  ControlFrame frame{kind, peer, {}};
  std::copy_n(text.data(), std::min(text.size(), sizeof frame.text - 1), frame.text);
  for (const TcpPeer& other : peers_) {
    if (other.control)
      (void)::send(other.control.get(), &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

}  // namespace tutti

#include "comm/ucx_wire.h"

#include <fmt/format.h>

#include "base/error.h"

#ifdef TUTTI_UCX
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/futex.h"
#include "comm/ucx_library.h"

namespace tutti {
namespace {

// A transfer moves in messages of this size, which divides the window of a receive.
constexpr size_t kPieceBytes = size_t{64} << 10;
// Up to here UCX sends at once, whether or not the other side has asked for it yet.
constexpr const char* kEagerBytes = "128k";
constexpr int kPassesPerLook = 64;  // at aborts, losses and the clock
constexpr std::chrono::microseconds kNap{50};
constexpr std::chrono::milliseconds kLastWords{50};

enum Kind : uint64_t { kData = 1, kControl = 2 };
constexpr ucp_tag_t kKindMask = 0xff;

ucp_tag_t tag_of(int from, int stream, Kind kind) {
  return static_cast<ucp_tag_t>(from) << 32 | static_cast<ucp_tag_t>(stream) << 8 | kind;
}

enum class Word : uint32_t { kAbort, kGoodbye };
struct ControlMessage {
  Word word;
  int32_t from;
  int32_t peer;
  char text[1012];
};

class UcxWire final : public Wire {
 public:
  UcxWire(const CommGroup& group, Store& store, Deadline deadline) : group_(group), ucx_(ucx_library()) {
    try {
      open();
      exchange_addresses(store, deadline);
    } catch (...) {
      close();
      throw;
    }
  }
  ~UcxWire() override {
    say(Word::kGoodbye, "", -1);
    close();
  }

  std::string_view name() const override { return "ucx"; }
  int num_streams() const override { return 1; }

  void exchange(const Call& call, std::span<Transfer> transfers, const std::function<void()>& on_progress) override {
    Flights flights(*this, transfers.size());
    const auto spin_end = Clock::now() + group_.spin;
    for (int pass = 1;; ++pass) {
      bool left = false;
      bool moved = false;
      for (size_t i = 0; i < transfers.size(); ++i) {
        moved = advance(call, transfers[i], flights.all[i]) || moved;
        left = left || transfers[i].left() > 0;
      }
      if (moved && on_progress) on_progress();
      if (!left) return;
      const bool busy = ucx_.worker_progress(worker_) > 0 || moved;
      if (!busy && Clock::now() > spin_end) {
        std::this_thread::sleep_for(kNap);
        look(call, transfers);
      } else if (pass % kPassesPerLook == 0) {
        look(call, transfers);
      }
    }
  }

  void abort(const std::string& reason, int peer) override {
    std::lock_guard lock(abort_mutex_);
    if (aborted_.load(std::memory_order_relaxed)) return;
    abort_reason_ = reason;
    abort_peer_ = peer;
    aborted_.store(true, std::memory_order_release);
    // UCX's worker belongs to the calling thread, which tells the others when it fails.
  }

 private:
  struct Peer {
    ucp_ep_h endpoint = nullptr;
    std::atomic<ucs_status_t> status{UCS_OK};
    std::optional<Clock::time_point> left;  // when it said goodbye
  };
  struct Flight {
    void* request = nullptr;
    size_t bytes = 0;
  };
  // What is on its way when a call fails must not write into memory that its caller takes back.
  struct Flights {
    UcxWire& wire;
    std::vector<Flight> all;
    Flights(UcxWire& w, size_t count) : wire(w), all(count) {}
    ~Flights() {
      for (Flight& f : all) {
        if (f.request != nullptr) wire.withdraw(f.request);
      }
    }
  };

  [[noreturn]] void fail(const char* what, ucs_status_t status) const {
    throw CommError(fmt::format("UCX: {}: {}", what, ucx_.status_string(status)));
  }

  void open() {
    ucp_config_t* config = nullptr;
    ucs_status_t status = ucx_.config_read(nullptr, nullptr, &config);
    if (status != UCS_OK) fail("reading the UCX_* variables", status);
    ucx_.config_modify(config, "RNDV_THRESH", kEagerBytes);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
    params.features = UCP_FEATURE_TAG;
    params.estimated_num_eps = static_cast<size_t>(group_.size);
    status = ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
    ucx_.config_release(config);
    if (status != UCS_OK) fail("no transport (see UCX_TLS, UCX_NET_DEVICES)", status);
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    status = ucx_.worker_create(context_, &worker, &worker_);
    if (status != UCS_OK) fail("making a worker", status);
  }

  void exchange_addresses(Store& store, Deadline deadline) {
    ucp_address_t* address = nullptr;
    size_t length = 0;
    const ucs_status_t status = ucx_.worker_get_address(worker_, &address, &length);
    if (status != UCS_OK) fail("the worker's address", status);
    store.set(key_of(group_.rank), std::string(reinterpret_cast<const char*>(address), length));
    ucx_.worker_release_address(worker_, address);
    peers_ = std::vector<Peer>(static_cast<size_t>(group_.size));
    for (int r = 0; r < group_.size; ++r) {
      if (r == group_.rank) continue;
      const std::string theirs = store.get(key_of(r), deadline);
      ucp_ep_params_t params{};
      params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
      params.address = reinterpret_cast<const ucp_address_t*>(theirs.data());
      params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      params.err_handler.cb = [](void* peer, ucp_ep_h, ucs_status_t error) { static_cast<Peer*>(peer)->status = error; };
      params.err_handler.arg = &peers_[static_cast<size_t>(r)];
      const ucs_status_t made = ucx_.ep_create(worker_, &params, &peers_[static_cast<size_t>(r)].endpoint);
      if (made != UCS_OK) {
        throw CommError(fmt::format("{}: no connection over UCX: {}", group_.label(r), ucx_.status_string(made)), r);
      }
    }
  }

  void close() {
    for (Peer& peer : peers_) {
      if (peer.endpoint == nullptr) continue;
      ucp_request_param_t param{};  // in order: what was sent still arrives
      finish(ucx_.ep_close_nbx(peer.endpoint, &param), Deadline::after(kLastWords));
      peer.endpoint = nullptr;
    }
    if (worker_ != nullptr) ucx_.worker_destroy(worker_);
    if (context_ != nullptr) ucx_.cleanup(context_);
    worker_ = nullptr;
    context_ = nullptr;
  }

  std::string key_of(int rank) const { return fmt::format("{}/ucx/{}", group_.key(), rank); }

  // One step of a transfer: its next piece goes on its way, or has arrived. True when bytes moved.
  bool advance(const Call& call, Transfer& t, Flight& flight) {
    bool moved = false;
    for (;;) {
      if (flight.request != nullptr) {
        const ucs_status_t status = ucx_.request_check_status(flight.request);
        if (status == UCS_INPROGRESS) return moved;
        ucx_.request_free(std::exchange(flight.request, nullptr));
        if (status != UCS_OK) throw_lost(call, t.peer, status);
      } else {
        const size_t bytes = std::min(t.left(), kPieceBytes);
        if (bytes == 0 || t.movable() < bytes) return moved;
        flight.bytes = bytes;
        const ucs_status_ptr_t request = start(t, bytes);
        if (UCS_PTR_IS_ERR(request)) throw_lost(call, t.peer, UCS_PTR_STATUS(request));
        if (request != nullptr) {
          flight.request = request;
          continue;
        }
      }
      t.done += flight.bytes;
      moved = true;
    }
  }

  ucs_status_ptr_t start(const Transfer& t, size_t bytes) {
    ucp_request_param_t param{};
    std::byte* place = t.data + t.done % t.window;
    if (t.sending) {
      return ucx_.tag_send_nbx(peers_[static_cast<size_t>(t.peer)].endpoint, place, bytes, tag_of(group_.rank, t.stream, kData), &param);
    }
    // A receive always gives a request: without one the length of what came could not be told.
    param.op_attr_mask = UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    return ucx_.tag_recv_nbx(worker_, place, bytes, tag_of(t.peer, t.stream, kData), ~ucp_tag_t{0}, &param);
  }

  void withdraw(void* request) {
    ucx_.request_cancel(worker_, request);
    finish(request, Deadline::after(kLastWords));
  }

  void finish(ucs_status_ptr_t request, Deadline deadline) {
    if (request == nullptr || UCS_PTR_IS_ERR(request)) return;
    while (ucx_.request_check_status(request) == UCS_INPROGRESS && !deadline.passed()) ucx_.worker_progress(worker_);
    ucx_.request_free(request);
  }

  // Whether the call can go on.
  void look(const Call& call, std::span<const Transfer> transfers) {
    if (aborted_.load(std::memory_order_acquire)) {
      std::lock_guard lock(abort_mutex_);
      const std::string reason = abort_reason_;
      say(Word::kAbort, reason, abort_peer_);
      throw CommError(reason, abort_peer_);
    }
    read_control();
    for (int r = 0; r < group_.size; ++r) {
      const Peer& peer = peers_[static_cast<size_t>(r)];
      if (!peer.left && peer.status != UCS_OK) throw_lost(call, r, peer.status);
      // What it sent before it left still counts, and may not have been looked at yet.
      if (!peer.left || Clock::now() - *peer.left < kLastWords) continue;
      const bool wanted = std::any_of(transfers.begin(), transfers.end(), [r](const Transfer& t) { return t.peer == r && t.left() > 0; });
      if (wanted) end(call, r, "left the group", "");
    }
    if (!call.deadline.passed()) return;
    const auto late = std::find_if(transfers.begin(), transfers.end(), [](const Transfer& t) { return t.left() > 0 && !t.sending; });
    const Transfer& t = late != transfers.end() ? *late : transfers.front();
    end(call, t.peer, fmt::format("late, {} of {} bytes {} in {:.1f} s", t.done, t.bytes, t.sending ? "taken" : "received", seconds_in(call)),
        "; its process is stopped or busy, or the link is cut");
  }

  void throw_lost(const Call& call, int peer, ucs_status_t status) {
    // The reason may be on its way.
    for (const Deadline words = Deadline::after(kLastWords); !words.passed();) {
      ucx_.worker_progress(worker_);
      read_control();
      if (peers_[static_cast<size_t>(peer)].left) end(call, peer, "left the group", "");
    }
    end(call, peer, fmt::format("connection lost ({})", ucx_.status_string(status)), "; its process ended or something between cut the connection");
  }

  [[noreturn]] void end(const Call& call, int peer, const std::string& what, const char* why) {
    const std::string text = fmt::format("{}: {} in {} over ucx{}", group_.label(peer), what, describe(call), why);
    say(Word::kAbort, text, peer);
    throw CommError(text, peer);
  }

  void read_control() {
    ucp_tag_recv_info_t info{};
    while (ucp_tag_message_h message = ucx_.tag_probe_nb(worker_, kControl, kKindMask, 1, &info)) {
      ControlMessage words{};
      ucp_request_param_t param{};
      finish(ucx_.tag_msg_recv_nbx(worker_, &words, std::min(info.length, sizeof words), message, &param), Deadline::after(kLastWords));
      words.text[sizeof words.text - 1] = '\0';
      if (words.from < 0 || words.from >= group_.size) continue;
      if (words.word == Word::kGoodbye) peers_[static_cast<size_t>(words.from)].left = Clock::now();
      if (words.word == Word::kAbort) throw CommError(words.text, words.peer < group_.size ? words.peer : -1);
    }
  }

  // Best effort: who cannot take a kilobyte is past being told.
  void say(Word word, const std::string& text, int peer) {
    ControlMessage words{word, group_.rank, peer, {}};
    std::copy_n(text.data(), std::min(text.size(), sizeof words.text - 1), words.text);
    const Deadline deadline = Deadline::after(kLastWords);
    for (Peer& other : peers_) {
      if (other.endpoint == nullptr || other.status != UCS_OK) continue;
      ucp_request_param_t param{};
      finish(ucx_.tag_send_nbx(other.endpoint, &words, sizeof words, tag_of(group_.rank, 0, kControl), &param), deadline);
    }
  }

  const CommGroup group_;
  const UcxLibrary& ucx_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<Peer> peers_;

  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;
  std::string abort_reason_;
  int abort_peer_ = -1;
};

}  // namespace

bool has_ucx() { return true; }

std::unique_ptr<Wire> make_ucx_wire(const CommGroup& group, Store& store, Deadline deadline) {
  return std::make_unique<UcxWire>(group, store, deadline);
}

}  // namespace tutti
#else

namespace tutti {

bool has_ucx() { return false; }

std::unique_ptr<Wire> make_ucx_wire(const CommGroup&, Store&, Deadline) {
  throw ConfigError("--comm-transport ucx: this program was built without UCX. Install libucx-dev and build it again, or use tcp");
}

}  // namespace tutti
#endif

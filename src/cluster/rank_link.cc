#include "cluster/rank_link.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <utility>

#include "base/error.h"
#include "protocol/wire.h"

namespace tutti {
namespace {

constexpr auto kSendTimeout = std::chrono::seconds(10);
constexpr auto kConfigTimeout = std::chrono::seconds(30);

Deadline send_deadline() { return Deadline::after(kSendTimeout); }

}  // namespace

// Values arrive on the reading thread and are kept, so a get() that comes late finds them.
class RankLink::ChannelStore final : public Store {
 public:
  explicit ChannelStore(FrameChannel& channel) : channel_(channel) {}

  void set(const std::string& key, const std::string& value) override {
    channel_.send(FrameType::kStoreSet, pack_pair(key, value), send_deadline());
  }
  std::string get(const std::string& key, Deadline deadline) override {
    channel_.send(FrameType::kStoreGet, key, send_deadline());
    return values_.get(key, deadline);
  }

  void arrived(const std::string& key, const std::string& value) { values_.set(key, value); }
  void close(const std::string& reason) { values_.close(reason); }

 private:
  FrameChannel& channel_;
  InMemoryStore values_;
};

RankLink::RankLink(int fd) : channel_(fd), store_(std::make_unique<ChannelStore>(channel_)) {
  const auto frame = channel_.receive(Deadline::after(kConfigTimeout));
  if (!frame || frame->type != FrameType::kConfig) {
    throw CommError("the parent of this rank sent no configuration within 30 s");
  }
  config_ = rank_config_from_text(frame->payload);
  reader_ = std::thread([this] { read_frames(); });
}

RankLink::~RankLink() {
  channel_.shut_down();
  reader_.join();
}

Store& RankLink::store() { return *store_; }

void RankLink::send_progress(const Json& progress) {
  channel_.send(FrameType::kProgress, dump_json(progress), send_deadline());
}

void RankLink::send_loaded(const Json& loaded) {
  channel_.send(FrameType::kLoaded, dump_json(loaded), send_deadline());
}

void RankLink::send_output(const ModelRunnerOutput& output) {
  channel_.send(FrameType::kOutput, wire::encode(output), send_deadline());
}

void RankLink::send_failed(const std::string& kind, const std::string& message) {
  channel_.send(FrameType::kFailed, pack_pair(kind, message), send_deadline());
}

Json RankLink::wait_start(Deadline deadline) {
  auto start = start_.pop(deadline);
  if (start) return std::move(*start);
  std::lock_guard lock(end_mutex_);
  throw CommError(end_reason_.value_or("the other ranks did not finish loading in time"));
}

std::optional<SchedulerOutput> RankLink::next_step() { return steps_.pop(Deadline::never()); }

std::optional<SchedulerOutput> RankLink::poll_step() { return steps_.try_pop(); }

bool RankLink::ended() {
  std::lock_guard lock(end_mutex_);
  return end_reason_.has_value();
}

void RankLink::on_end(std::function<void(const std::string&)> callback) {
  std::lock_guard lock(end_mutex_);
  end_callback_ = std::move(callback);
  if (end_reason_ && end_callback_) end_callback_(*end_reason_);
}

void RankLink::read_frames() {
  try {
    while (true) {
      auto frame = channel_.receive(Deadline::never());
      if (!frame) continue;
      switch (frame->type) {
        case FrameType::kStep:
          steps_.push(wire::decode_scheduler_output(frame->payload));
          break;
        case FrameType::kStoreValue: {
          const auto [key, value] = unpack_pair(frame->payload);
          store_->arrived(key, value);
          break;
        }
        case FrameType::kStart:
          start_.push(parse_json(frame->payload, "start message of the head"));
          break;
        case FrameType::kEnd:
          finish("the cluster ends");
          return;
        default:
          throw IoError("a frame of type " + std::to_string(static_cast<int>(frame->type)) +
                        " that a rank does not expect");
      }
    }
  } catch (const Error& e) {
    finish(std::string("the channel to the parent broke: ") + e.what());
  }
}

void RankLink::finish(const std::string& reason) {
  store_->close(reason);
  {
    std::lock_guard lock(end_mutex_);
    end_reason_ = reason;
    if (end_callback_) end_callback_(reason);
  }
  start_.close();
  steps_.close();
}

bool die_with_parent(int parent_pid) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return ::getppid() == parent_pid;
}

}  // namespace tutti

#include "cluster/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/log.h"

extern char** environ;

namespace tutti {
namespace {

constexpr int kChannelFd = 3;  // where a rank finds its channel
constexpr auto kSendTimeout = std::chrono::seconds(10);
constexpr auto kKillTimeout = std::chrono::seconds(10);  // a process in a system call that hangs outlives SIGKILL

// Owns the two halves of a posix_spawn description.
struct SpawnPlan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  explicit SpawnPlan(int channel_fd) {
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, channel_fd, kChannelFd);
    // Libraries open sockets that a new program keeps. A client's connection would stay open in a rank when the server closes it.
    posix_spawn_file_actions_addclosefrom_np(&actions, kChannelFd + 1);
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    // A process group of its own: Ctrl-C reaches the parent, which lets requests finish first.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

std::string describe_exit(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return "ended with exit code " + std::to_string(info.si_status);
  return "was killed by signal " + std::to_string(info.si_status) + " (" + ::strsignal(info.si_status) + ")";
}

}  // namespace

char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');  // the name may hold any character
  return name_end == std::string::npos || name_end + 2 >= text.size() ? '?' : text[name_end + 2];
}

RankProcesses::RankProcesses(Callbacks callbacks)
    : callbacks_(std::move(callbacks)), wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_fd_) throw IoError(std::string("cannot create an eventfd: ") + std::strerror(errno));
  listener_ = std::thread([this] { listen(); });
}

RankProcesses::~RankProcesses() {
  stop(std::chrono::seconds(2));
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  listener_.join();
}

void RankProcesses::wake() {
  const uint64_t one = 1;
  if (::write(wake_fd_.get(), &one, sizeof one) < 0) log::debug("eventfd is full");
}

pid_t RankProcesses::spawn(int rank, const std::string& config) {
  SpawnRequest request{rank, config, {}};
  auto pid = request.pid.get_future();
  {
    std::lock_guard lock(mutex_);
    spawn_requests_.push_back(&request);
  }
  wake();
  return pid.get();
}

void RankProcesses::start_requested() {
  std::deque<SpawnRequest*> requests;
  {
    std::lock_guard lock(mutex_);
    requests.swap(spawn_requests_);
  }
  for (SpawnRequest* request : requests) {
    std::exception_ptr error;  // the caller's alone once it has it
    pid_t pid = 0;
    try {
      pid = start(request->rank, request->config);
    } catch (const Error&) {
      error = std::current_exception();
    }
    if (error == nullptr) {
      request->pid.set_value(pid);
    } else {
      request->pid.set_exception(std::move(error));
    }
  }
}

pid_t RankProcesses::start(int rank, const std::string& config) {
  const auto [ours, theirs] = make_socket_pair();
  auto child = std::make_shared<Child>();
  child->rank = rank;
  child->channel = std::make_shared<FrameChannel>(ours);
  Fd their_end(theirs);
  SpawnPlan plan(theirs);
  const std::string parent = std::to_string(::getpid());
  std::string arguments[] = {"tutti", "rank", "--parent", parent};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int error = ::posix_spawn(&child->pid, "/proc/self/exe", &plan.actions, &plan.attributes, argv.data(), environ);
  their_end.reset();  // or a rank that ends at once would not be missed
  if (error != 0) throw IoError("cannot start the process of rank " + std::to_string(rank) + ": " + std::strerror(error));
  child->pidfd = Fd(static_cast<int>(::syscall(SYS_pidfd_open, child->pid, 0)));
  if (!child->pidfd) {
    const std::string reason = std::strerror(errno);
    ::kill(child->pid, SIGKILL);
    ::waitpid(child->pid, nullptr, 0);
    throw IoError("cannot watch the process of rank " + std::to_string(rank) + ": " + reason);
  }
  const pid_t pid = child->pid;
  const auto channel = child->channel;
  {
    std::lock_guard lock(mutex_);
    children_[rank] = std::move(child);
  }
  channel->send(FrameType::kConfig, config, Deadline::after(kSendTimeout));
  return pid;
}

void RankProcesses::send(int rank, FrameType type, std::string_view payload) {
  std::shared_ptr<FrameChannel> channel;
  {
    std::lock_guard lock(mutex_);
    const auto found = children_.find(rank);
    if (found == children_.end()) throw CommError("rank " + std::to_string(rank) + " has ended", rank);
    channel = found->second->channel;
  }
  channel->send(type, payload, Deadline::after(kSendTimeout));
}

std::map<int, char> RankProcesses::states() const {
  std::lock_guard lock(mutex_);
  std::map<int, char> states;
  for (const auto& [rank, child] : children_) states[rank] = process_state(child->pid);
  return states;
}

void RankProcesses::stop(std::chrono::nanoseconds grace) {
  std::unique_lock lock(mutex_);
  for (const auto& [rank, child] : children_) {
    try {
      child->channel->send(FrameType::kEnd, "", Deadline::after(std::chrono::milliseconds(100)));
    } catch (const Error& e) {
      log::debug(fmt::format("rank {} took no end message: {}", rank, e.what()));
    }
  }
  const auto none_left = [this] { return children_.empty(); };
  if (all_reaped_.wait_for(lock, grace, none_left)) return;
  for (const auto& [rank, child] : children_) ::kill(child->pid, SIGKILL);
  if (all_reaped_.wait_for(lock, kKillTimeout, none_left)) return;
  for (const auto& [rank, child] : children_) {
    log::warning("rank {} (pid {}) does not end after SIGKILL: the kernel holds it (process state {}). Going on without it", rank,
                 child->pid, process_state(child->pid));
  }
}

// Hands out the frames that are there; closes the channel's side when the rank has closed its own.
void RankProcesses::drain_channel(Child& child) {
  try {
    while (auto frame = child.channel->receive(Deadline::after(std::chrono::nanoseconds(0)))) {
      callbacks_.on_frame(child.rank, std::move(*frame));
    }
  } catch (const Error& e) {
    log::debug(fmt::format("rank {}: {}", child.rank, e.what()));
    child.open = false;
  }
}

// True when the process has ended and is reaped.
bool RankProcesses::reap(Child& child) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return false;
  if (child.open) drain_channel(child);
  {
    std::lock_guard lock(mutex_);
    const auto found = children_.find(child.rank);
    if (found != children_.end() && found->second.get() == &child) children_.erase(found);
  }
  callbacks_.on_exit(child.rank, child.pid, describe_exit(info));
  all_reaped_.notify_all();
  return true;
}

void RankProcesses::listen() {
  while (true) {
    start_requested();
    std::vector<std::shared_ptr<Child>> children;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (const auto& [rank, child] : children_) children.push_back(child);
    }
    std::vector<pollfd> entries{{wake_fd_.get(), POLLIN, 0}};
    for (const auto& child : children) {
      entries.push_back({child->open ? child->channel->fd() : -1, POLLIN, 0});
      entries.push_back({child->pidfd.get(), POLLIN, 0});
    }
    if (::poll(entries.data(), entries.size(), -1) < 0) continue;  // EINTR
    if (entries[0].revents != 0) {
      uint64_t count = 0;
      if (::read(wake_fd_.get(), &count, sizeof count) < 0) log::debug("eventfd was empty");
    }
    for (size_t i = 0; i < children.size(); ++i) {
      if (entries[1 + 2 * i].revents != 0) drain_channel(*children[i]);
      if (entries[2 + 2 * i].revents != 0) reap(*children[i]);
    }
  }
}

}  // namespace tutti

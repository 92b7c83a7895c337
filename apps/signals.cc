#include "apps/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tutti {

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  fd_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_) throw IoError(std::string("cannot watch signals: ") + std::strerror(errno));
}

std::optional<int> Signals::wait(Deadline deadline) {
  while (true) {
    signalfd_siginfo info{};
    if (::read(fd_.get(), &info, sizeof info) == sizeof info) {
      ++count_;
      return static_cast<int>(info.ssi_signo);
    }
    if (deadline.passed()) return std::nullopt;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    pollfd entry{fd_.get(), POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(ms, 3'600'000)));
  }
}

int Signals::count() {
  while (wait(Deadline::after(std::chrono::nanoseconds(0)))) {
  }
  return count_;
}

}  // namespace tutti

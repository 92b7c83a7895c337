#include "rank_processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace tutti {
namespace {

constexpr std::chrono::seconds kReadyTime{30};

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

std::string ready_key(int rank) { return "ready/" + std::to_string(rank); }

}  // namespace

RankProcesses::RankProcesses(int size, const Body& body) : processes_(static_cast<size_t>(size)) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-ranks-XXXXXX").string();
  require(::mkdtemp(folder.data()) != nullptr, "mkdtemp");
  folder_ = folder;
  for (int r = 0; r < size; ++r) {
    int ends[2];
    require(::pipe(ends) == 0, "pipe");
    const pid_t pid = ::fork();
    require(pid >= 0, "fork");
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      run_rank(r, body, ends[1]);
    }
    ::close(ends[1]);
    processes_[static_cast<size_t>(r)] = {pid, ends[0]};
  }
}

// In the child; does not return. The first character says whether a report or an error follows.
void RankProcesses::run_rank(int rank, const Body& body, int output) {
  std::string text;
  try {
    FolderStore store(folder_);
    text = "+" + body(rank, store);
  } catch (const std::exception& error) {
    text = std::string("-") + error.what();
  }
  write_all(output, text);
  ::_exit(0);
}

RankProcesses::~RankProcesses() {
  for (const Process& process : processes_) {
    if (process.pid > 0) {
      ::kill(process.pid, SIGKILL);
      ::waitpid(process.pid, nullptr, 0);
    }
    if (process.output >= 0) ::close(process.output);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RankProcesses::wait_ready(int rank) {
  FolderStore(folder_).get(ready_key(rank), Deadline::after(kReadyTime));
}

void RankProcesses::signal(int rank, int signal) { ::kill(pid(rank), signal); }

std::vector<RankResult> RankProcesses::wait(std::chrono::seconds limit) {
  const auto start = Clock::now();
  const Deadline deadline = Deadline::after(limit);
  std::vector<RankResult> results(processes_.size());
  std::vector<std::string> texts(processes_.size());
  std::vector<pollfd> entries;
  for (const Process& process : processes_) entries.push_back({process.output, POLLIN, 0});
  // The end of a rank's output is the end of the rank.
  for (size_t running = entries.size(); running > 0 && !deadline.passed();) {
    ::poll(entries.data(), entries.size(), 100);
    for (size_t r = 0; r < entries.size(); ++r) {
      if (entries[r].fd < 0 || entries[r].revents == 0) continue;
      char buffer[4096];
      const ssize_t n = ::read(entries[r].fd, buffer, sizeof buffer);
      if (n > 0) {
        texts[r].append(buffer, static_cast<size_t>(n));
        continue;
      }
      entries[r].fd = -1;
      --running;
      results[r].seconds = std::chrono::duration<double>(Clock::now() - start).count();
    }
  }
  for (size_t r = 0; r < entries.size(); ++r) {
    if (entries[r].fd >= 0) {
      results[r].error = "still running";
      ::kill(processes_[r].pid, SIGKILL);
    } else if (!texts[r].empty()) {
      (texts[r][0] == '+' ? results[r].report : results[r].error) = texts[r].substr(1);
    }
    int status = 0;
    ::waitpid(processes_[r].pid, &status, 0);
    processes_[r].pid = -1;
    if (WIFSIGNALED(status)) results[r].signal = WTERMSIG(status);
  }
  return results;
}

bool in_ci() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && std::string_view(ci) == "true";
}

void mark_ready(Store& store, int rank) { store.set(ready_key(rank), "1"); }

RankProcesses::Body with_communicator(int size, CommOptions options,
                                      std::function<std::string(Communicator&, Store&)> body) {
  return [=](int rank, Store& store) {
    CommOptions own = options;
    own.rank = rank;
    own.size = size;
    const auto communicator = make_communicator(own, store);
    return body(*communicator, store);
  };
}

}  // namespace tutti

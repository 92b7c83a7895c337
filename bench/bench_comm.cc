// All-reduce latency between ranks that it starts itself: over shared memory, or over TCP, where
// each rank may live in a network namespace of its own. Prints one JSON object; bench/comm.py runs
// it beside an MPI library.
//
//   bench_comm --transport shm
//   bench_comm --transport tcp --netns a,b --addresses 10.0.0.1,10.0.0.2 --sizes 8192
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "comm/comm_factory.h"
#include "comm/folder_store.h"

namespace tutti {
namespace {

struct BenchOptions {
  std::string transport = "shm";
  int ranks = 2;
  std::vector<int64_t> sizes = {1024, 8192, 65536, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  std::vector<std::string> netns;
  std::vector<std::string> addresses;
  int streams = 1;
  std::string comm_dtype = "auto";
};

void enter_namespace(const std::string& name) {
  const Fd fd(::open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || ::setns(fd.get(), CLONE_NEWNET) != 0)
    throw IoError("cannot enter the network namespace " + name);
}

CommOptions comm_options(const BenchOptions& bench, int rank) {
  CommOptions options;
  options.rank = rank;
  options.size = bench.ranks;
  options.transport = bench.transport == "shm" ? TransportKind::kShm : TransportKind::kTcp;
  options.ranks_on_node = bench.ranks;  // namespaces share the processors of this machine
  options.tcp_streams = bench.streams;
  options.comm_dtype = comm_dtype_from_name(bench.comm_dtype).value();
  options.secret = "bench";
  options.check_sequence = false;
  if (!bench.addresses.empty()) options.bind_address = bench.addresses[static_cast<size_t>(rank)];
  return options;
}

// Calls of one size; their times in microseconds, sorted.
std::vector<double> measure(Communicator& comm, int64_t bytes) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(float));
  const int64_t calls = std::clamp<int64_t>(200'000'000 / std::max<int64_t>(bytes, 1), 10, 3000);
  std::vector<float> data(static_cast<size_t>(count));
  std::vector<double> times;
  for (int64_t i = -calls / 10 - 1; i < calls; ++i) {
    const auto start = Clock::now();
    comm.all_reduce(data.data(), count, DType::kF32);
    if (i >= 0)
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times;
}

void run_rank(const BenchOptions& bench, int rank, const std::string& folder) {
  if (!bench.netns.empty()) enter_namespace(bench.netns[static_cast<size_t>(rank)]);
  FolderStore store(folder);
  const auto comm = make_communicator(comm_options(bench, rank), store);
  Json results = Json::array();
  for (const int64_t bytes : bench.sizes) {
    const std::vector<double> times = measure(*comm, bytes);
    results.push_back({{"bytes", bytes},
                       {"calls", times.size()},
                       {"p50_us", times[times.size() / 2]},
                       {"p99_us", times[times.size() * 99 / 100]}});
  }
  if (rank != 0) return;
  std::cout << dump_json({{"library", "tutti"},
                          {"transport", comm->transport()},
                          {"ranks", bench.ranks},
                          {"streams", bench.streams},
                          {"comm_dtype", bench.comm_dtype},
                          {"results", results},
                          {"payload_bytes", comm->stats().bytes}})
            << std::endl;
}

// The ranks are processes, as they are in a cluster.
int run_all(const BenchOptions& bench) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw IoError("cannot make a folder for the rendezvous");
  std::vector<pid_t> pids;
  for (int rank = 0; rank < bench.ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid < 0) throw IoError("cannot start a process");
    if (pid > 0) {
      pids.push_back(pid);
      continue;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      run_rank(bench, rank, folder);
      ::_exit(0);
    } catch (const std::exception& error) {
      std::cerr << "rank " << rank << ": " << error.what() << std::endl;
      ::_exit(1);
    }
  }
  int failed = 0;
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    failed |= status;
  }
  std::filesystem::remove_all(folder);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  tutti::BenchOptions bench;
  CLI::App app("All-reduce latency between ranks of this machine");
  app.add_option("--transport", bench.transport, "shm or tcp")
      ->check(CLI::IsMember({"shm", "tcp"}));
  app.add_option("--ranks", bench.ranks, "number of ranks")->check(CLI::Range(2, 64));
  app.add_option("--sizes", bench.sizes, "bytes of each message")->delimiter(',');
  app.add_option("--netns", bench.netns, "network namespace of each rank")->delimiter(',');
  app.add_option("--addresses", bench.addresses, "address of each rank")->delimiter(',');
  app.add_option("--streams", bench.streams, "TCP connections of a pair");
  app.add_option("--comm-dtype", bench.comm_dtype, "type of the sums on the wire, over TCP")
      ->check(CLI::IsMember({"auto", "int8", "fp8"}));
  CLI11_PARSE(app, argc, argv);
  const auto ranks = static_cast<size_t>(bench.ranks);
  if ((!bench.netns.empty() && bench.netns.size() != ranks) ||
      (!bench.addresses.empty() && bench.addresses.size() != ranks)) {
    std::cerr << "--netns and --addresses need one entry for each of the " << bench.ranks
              << " ranks\n";
    return 2;
  }
  try {
    return tutti::run_all(bench);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

// `tutti bench comm`: collectives between ranks that it starts on this machine: over shared memory, over TCP, where each rank
// may live in a network namespace of its own, or between GPUs. bench/comm.py runs it beside an MPI library,
// scripts/multi_gpu.sh beside NCCL through PyTorch.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

#include "apps/bench_commands.h"
#include "apps/flag_parser.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "comm/comm_factory.h"
#include "comm/device_bench.h"
#include "comm/device_factory.h"
#include "comm/folder_store.h"

namespace tutti {
namespace {

constexpr int kRounds = 9;  // replays of a graph of calls between GPUs

struct BenchOptions {
  std::string transport = "auto";
  int ranks = 2;
  std::vector<int64_t> sizes;
  std::vector<std::string> netns;
  std::vector<std::string> addresses;
  int streams = 1;
  std::string comm_dtype = "auto";
  std::vector<std::string> collectives;
  bool share_gpu = false;
  bool json = false;

  bool on_gpus() const { return transport != "shm" && transport != "tcp"; }
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
  options.transport = bench.transport == "tcp" ? TransportKind::kTcp : TransportKind::kShm;
  options.ranks_on_node = bench.ranks;  // namespaces share the processors of this machine
  options.tcp_streams = bench.streams;
  options.comm_dtype = comm_dtype_from_name(bench.comm_dtype).value();
  options.secret = "bench";
  options.check_sequence = false;
  if (!bench.addresses.empty()) options.bind_address = bench.addresses[static_cast<size_t>(rank)];
  if (bench.on_gpus() && !bench.netns.empty()) {
    options.transport = TransportKind::kAuto;
    for (const std::string& name : bench.netns) options.nodes.push_back(name);
  }
  return options;
}

// One call of a collective. `send` and `recv` have room for ranks * bytes; `bytes` is what a rank hands
// in for each other rank, and for all-reduce the whole message.
void call(Communicator& comm, const std::string& name, void* send, void* recv, int64_t bytes,
          DType dtype) {
  const int64_t count = bytes / static_cast<int64_t>(dtype_bytes(dtype, 1));
  const auto size = static_cast<size_t>(bytes);
  if (name == "all-reduce") return comm.all_reduce(send, count, dtype);
  if (name == "all-gather") return comm.all_gather(send, recv, size);
  if (name == "reduce-scatter") return comm.reduce_scatter(send, recv, count, dtype);
  if (name == "all-to-all") return comm.all_to_all(send, recv, size);
  // send/recv: to the next rank and back, half of the time is one way
  const int last = comm.size() - 1;
  if (comm.rank() == 0) {
    comm.send(send, size, last);
    comm.recv(recv, size, last);
  } else if (comm.rank() == last) {
    comm.recv(recv, size, 0);
    comm.send(send, size, 0);
  }
}

// Calls of one size; their times in microseconds, sorted.
std::vector<double> measure(Communicator& comm, const std::string& name, int64_t bytes) {
  const int64_t calls = std::clamp<int64_t>(200'000'000 / std::max<int64_t>(bytes, 1), 10, 3000);
  const auto room = static_cast<size_t>(bytes) * static_cast<size_t>(comm.size());
  std::vector<std::byte> send(room), recv(room);
  std::vector<double> times;
  for (int64_t i = -calls / 10 - 1; i < calls; ++i) {
    const auto start = Clock::now();
    call(comm, name, send.data(), recv.data(), bytes, DType::kF32);
    if (i >= 0)
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  return times;
}

Json row_of(const std::string& name, int64_t bytes, const std::vector<double>& times) {
  const double way = name == "send-recv" ? 0.5 : 1.0;
  return {{"collective", name},
          {"bytes", bytes},
          {"calls", times.size()},
          {"p50_us", way * times[times.size() / 2]},
          {"min_us", way * times.front()},
          {"p99_us", way * times[times.size() * 99 / 100]}};
}

struct Measured {
  std::string transport;
  std::string dtype;
  Json results = Json::array();
  int64_t payload_bytes = 0;
};

Measured measure_cpu(const BenchOptions& bench, int rank, Store& store) {
  const auto comm = make_communicator(comm_options(bench, rank), store);
  Measured measured{std::string(comm->transport()), "F32"};
  for (const std::string& name : bench.collectives) {
    for (const int64_t bytes : bench.sizes)
      measured.results.push_back(row_of(name, bytes, measure(*comm, name, bytes)));
  }
  measured.payload_bytes = comm->stats().bytes;
  return measured;
}

// On GPUs the calls run in captured graphs, as in a decode step, and the device's clock times them.
Measured measure_gpu(const BenchOptions& bench, int rank, Store& store) {
  using Path = DeviceCommOptions::Path;
  // A node sees its own GPU alone. Before the first call that asks the driver.
  if (!bench.netns.empty()) ::setenv("CUDA_VISIBLE_DEVICES", std::to_string(rank).c_str(), 1);
  DeviceCommOptions options;
  options.group = comm_options(bench, rank);
  const bool first = bench.share_gpu || !bench.netns.empty();
  options.device = Device::cuda(first ? 0 : rank);
  options.path = bench.transport == "nccl"       ? Path::kNccl
                 : bench.transport == "cuda_ipc" ? Path::kCudaIpc
                                                 : Path::kAuto;
  CommOptions meeting = options.group;
  meeting.group_name = "meeting";
  const auto meet = make_communicator(meeting, store);
  DeviceBench device(options.device);
  options.stream = device.stream();
  const auto comm = make_device_communicator(options, store);
  Measured measured{std::string(comm->transport()), "BF16"};
  const int64_t largest = *std::max_element(bench.sizes.begin(), bench.sizes.end());
  const auto room = static_cast<size_t>(largest) * static_cast<size_t>(bench.ranks);
  const auto send = device.random(room);
  const auto recv = device.random(room);
  for (const std::string& name : bench.collectives) {
    for (const int64_t bytes : bench.sizes) {
      const int calls = bytes > (4 << 20) ? 10 : 100;
      std::vector<double> times = device.microseconds(
          calls, kRounds,
          [&] { call(*comm, name, send->data(), recv->data(), bytes, DType::kBF16); },
          [&] { meet->barrier(); });
      std::sort(times.begin(), times.end());
      measured.results.push_back(row_of(name, bytes, times));
      measured.payload_bytes += bytes * calls * kRounds;  // replays are not in the statistics
    }
  }
  comm->finish();
  return measured;
}

void print(const BenchOptions& bench, const Measured& measured) {
  if (bench.json) {
    std::printf("%s\n", dump_json({{"library", "tutti"},
                                   {"transport", measured.transport},
                                   {"ranks", bench.ranks},
                                   {"dtype", measured.dtype},
                                   {"streams", bench.streams},
                                   {"comm_dtype", bench.comm_dtype},
                                   {"results", measured.results},
                                   {"payload_bytes", measured.payload_bytes}})
                            .c_str());
  } else {
    std::printf("%d ranks, %s, %s\n%-14s %11s %11s %11s %11s\n", bench.ranks, measured.transport.c_str(), measured.dtype.c_str(),
                "collective", "bytes", "p50 us", "best us", "p99 us");
    for (const Json& row : measured.results) {
      std::printf("%-14s %11lld %11.2f %11.2f %11.2f\n", row["collective"].get<std::string>().c_str(),
                  static_cast<long long>(row["bytes"].get<int64_t>()), row["p50_us"].get<double>(), row["min_us"].get<double>(),
                  row["p99_us"].get<double>());
    }
  }
  std::fflush(stdout);
}

void run_rank(const BenchOptions& bench, int rank, const std::string& folder) {
  if (!bench.netns.empty()) enter_namespace(bench.netns[static_cast<size_t>(rank)]);
  FolderStore store(folder);
  const Measured measured =
      bench.on_gpus() ? measure_gpu(bench, rank, store) : measure_cpu(bench, rank, store);
  if (rank == 0) print(bench, measured);
}

// The ranks are processes, as they are in a cluster. False when one of them failed: it has said why, and ends the others.
bool run_all(const BenchOptions& bench) {
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
      log::error("rank {}: {}", rank, error.what());
      ::_exit(1);
    }
  }
  int failed = 0;
  while (!pids.empty()) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended < 0 && errno == EINTR) continue;
    if (ended < 0) throw IoError(std::string("cannot wait for the ranks: ") + std::strerror(errno));
    std::erase(pids, ended);
    if (status != 0 && failed == 0) {  // the others would wait for it until their patience ends
      for (const pid_t pid : pids) ::kill(pid, SIGTERM);
    }
    failed |= status;
  }
  std::filesystem::remove_all(folder);
  return failed == 0;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

void check_names(const std::string& flag, const std::vector<std::string>& given, const std::string& known) {
  const std::vector<std::string> all = split(known);
  for (const std::string& name : given) {
    if (std::find(all.begin(), all.end(), name) == all.end()) throw ConfigError(flag + " " + name + ": expected " + known);
  }
  if (given.empty()) throw ConfigError(flag + ": expected " + known);
}

BenchOptions parse(const Arguments& arguments) {
  constexpr const char* kTransports = "auto,shm,tcp,cuda_ipc,nccl,gpu";
  constexpr const char* kCollectives = "all-reduce,all-gather,reduce-scatter,all-to-all,send-recv";
  BenchOptions bench;
  constexpr const char* kSizes = "1K,8K,64K,1M,4M,16M,64M";
  std::string sizes = kSizes, collectives = "all-reduce", netns, addresses;
  FlagParser p("tutti bench comm", "Measures collectives between ranks that it starts on this machine.");
  p.value("--transport", &bench.transport,
          "shm, tcp, cuda_ipc, nccl, gpu (by size), auto (gpu where there are enough, else shm)");
  p.value("--ranks", &bench.ranks, "number of ranks (2)");
  p.value("--collectives", &collectives, kCollectives);
  p.value("--sizes", &sizes, fmt::format("bytes of each message ({})", kSizes));
  p.value("--netns", &netns, "network namespace of each rank, as two nodes");
  p.value("--addresses", &addresses, "address of each rank, likewise");
  p.value("--tcp-streams", &bench.streams, "connections of two ranks that share a large message");
  p.value("--comm-dtype", &bench.comm_dtype, "auto, int8 or fp8: of the sums on the wire, over TCP");
  p.toggle("--share-gpu", &bench.share_gpu, "all ranks on the first GPU, under the MPS daemon");
  p.toggle("--json", &bench.json, "one JSON object in place of the table");
  p.parse(arguments);
  bench.collectives = split(collectives);
  bench.netns = split(netns);
  bench.addresses = split(addresses);
  for (const std::string& size : split(sizes)) bench.sizes.push_back(parse_count(size, "--sizes"));
  check_names("--transport", {bench.transport}, kTransports);
  check_names("--collectives", bench.collectives, kCollectives);
  check_names("--comm-dtype", {bench.comm_dtype}, "auto,int8,fp8");
  if (bench.ranks < 2 || bench.ranks > 64) throw ConfigError(fmt::format("--ranks {}: expected 2 to 64", bench.ranks));
  if (bench.sizes.empty() || *std::min_element(bench.sizes.begin(), bench.sizes.end()) < 1)
    throw ConfigError("--sizes " + sizes + ": expected at least 1");
  const auto ranks = static_cast<size_t>(bench.ranks);
  if ((!bench.netns.empty() && bench.netns.size() != ranks) || (!bench.addresses.empty() && bench.addresses.size() != ranks))
    throw ConfigError(fmt::format("--netns and --addresses need one entry for each of the {} ranks", bench.ranks));
  return bench;
}

// Asked in a process of its own: whoever has asked the driver must not fork.
int gpus_here() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(std::min(visible_gpus(), 100));
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

}  // namespace

int run_bench_comm(const Arguments& arguments) {
  BenchOptions bench = parse(arguments);
  log::setup({});
  if (bench.transport == "auto") bench.transport = bench.netns.empty() && gpus_here() >= bench.ranks ? "gpu" : "shm";
  if (bench.on_gpus() && !bench.share_gpu && bench.netns.empty()) {
    if (const int gpus = gpus_here(); gpus < bench.ranks) {
      throw ConfigError(fmt::format("this machine shows {} GPUs, {} ranks need one each (--share-gpu: all on the first, under the MPS daemon)",
                                    gpus, bench.ranks));
    }
  }
  return run_all(bench) ? static_cast<int>(ExitCode::kOk) : static_cast<int>(ExitCode::kClusterLost);
}

}  // namespace tutti

#include "comm/device_factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "comm/cuda_ipc/cuda_ipc_transport.h"
#include "comm/cuda_ipc/cuda_stream.h"
#include "comm/group_communicator.h"
#include "comm/nccl/nccl_environment.h"
#include "comm/nccl/nccl_transport.h"
#include "tensor/device_memory.h"

namespace tutti {
namespace {

using cuda_ipc::CudaIpcTransport;
using cuda_ipc::CudaStream;

// A group of one: there is nobody to talk to, but gathers and scatters still copy.
class LoneGpu final : public Transport {
 public:
  explicit LoneGpu(CudaStream& stream) : stream_(stream) {}
  std::string_view name() const override { return "self"; }
  void all_reduce(const Call&, void*, int64_t, DType) override {}
  void all_gather(const Call&, const void* send, void* recv, size_t bytes) override { copy(recv, send, bytes); }
  void reduce_scatter(const Call&, const void* send, void* recv, int64_t count, DType dtype) override {
    copy(recv, send, dtype_bytes(dtype, count));
  }
  void broadcast(const Call&, void*, size_t, int) override {}
  void all_to_all(const Call&, const void* send, void* recv, size_t bytes) override { copy(recv, send, bytes); }
  void send(const Call&, const void*, size_t, int) override {}  // GroupCommunicator refuses messages to oneself
  void recv(const Call&, void*, size_t, int) override {}
  void barrier(const Call&) override {}
  void finish(const Call& call) override {
    const uint64_t end = stream_.mark();
    while (!stream_.reached(end)) {
      if (call.deadline.passed()) throw DeviceError(fmt::format("{}: its work has not ended after {:.1f} s", to_string(stream_.device()), seconds_in(call)));
    }
  }
  void watch(const Call&) override {}
  void abort(const std::string&, int) override {}

 private:
  void copy(void* to, const void* from, size_t bytes) {
    if (to != from && bytes > 0) stream_.copy(to, from, bytes);
  }
  CudaStream& stream_;
};

constexpr const char* kNcclCosts = "small all-reduces take 2 to 3 times as long";

// What the transports of a group stand on.
struct Base {
  Base(Device device, void* handle) : stream(device, handle) {}
  CudaStream stream;
  std::unique_ptr<Communicator> control;
  std::shared_ptr<Buffer> scratch;
};

// All ranks know it; one says it.
void note(const CommGroup& group, const std::string& text) {
  if (group.rank == 0) log::note("group {}: {}", group.name, text);
}

std::unique_ptr<CudaIpcTransport> try_cuda_ipc(const CommGroup& group, Base& base, Deadline setup, bool required) {
  try {
    return std::make_unique<CudaIpcTransport>(group, base.stream, *base.control, setup);
  } catch (const cuda_ipc::Unavailable& reason) {
    if (required) {
      throw DeviceError(fmt::format("group {}: the GPUs cannot use each other's memory: {}. Several ranks on one GPU need the MPS "
                                    "daemon (nvidia-cuda-mps-control -d)", group.name, reason.what()));
    }
    note(group, fmt::format("the GPUs cannot use each other's memory, all goes through NCCL ({}): {}", kNcclCosts, reason.what()));
    return nullptr;
  }
}

// NCCL refuses two ranks on one GPU, and says so only in its own log.
bool any_gpu_shared(const Base& base, Communicator& control) {
  const auto gpus = cuda_ipc::gather_gpus(control, base.stream.device());
  return std::set<std::string>(gpus.begin(), gpus.end()).size() < gpus.size();
}

std::unique_ptr<NcclTransport> make_nccl(const CommOptions& o, const CommGroup& group, Base& base, Deadline setup) {
  nccl::prepare(*base.control, o);
  base.scratch = cuda::allocate(sizeof(int64_t), base.stream.device());
  return std::make_unique<NcclTransport>(group, nccl::library(), base.stream, *base.control, base.scratch->data(), setup);
}

// Whether all ranks can open NCCL; the first that cannot gives its words to all.
std::string why_no_nccl(Communicator& control, const CommGroup& group) {
  std::string problem;
  try {
    (void)nccl::library();
  } catch (const ConfigError& error) {
    problem = error.what();
  }
  try {
    cuda_ipc::agree(control, group, problem);
  } catch (const cuda_ipc::Unavailable& reason) {
    return reason.what();
  }
  return "";
}

std::unique_ptr<Transport> choose_way(const DeviceCommOptions& options, const CommOptions& o, const CommGroup& group, Base& base,
                                      Deadline setup) {
  using Path = DeviceCommOptions::Path;
  const bool one_node = std::set<std::string>(o.nodes.begin(), o.nodes.end()).size() == 1;
  const bool shared = any_gpu_shared(base, *base.control);
  if (shared && (!one_node || options.path == Path::kNccl)) {
    throw ConfigError(fmt::format("group {}: several ranks use one GPU, which NCCL refuses; give each rank a GPU of its own", group.name));
  }
  std::unique_ptr<CudaIpcTransport> ipc;
  if (one_node && options.path != Path::kNccl)
    ipc = try_cuda_ipc(group, base, setup, shared || options.path == Path::kCudaIpc);
  if (one_node && !options.why_nccl.empty()) note(group, fmt::format("{}: all goes through NCCL ({})", options.why_nccl, kNcclCosts));
  const std::string no_nccl = why_no_nccl(*base.control, group);
  if (ipc == nullptr) {
    if (!no_nccl.empty()) throw ConfigError(no_nccl);
    return make_nccl(o, group, base, setup);
  }
  if (shared) {
    note(group, fmt::format("{} ranks share this GPU, a test mode that needs the MPS daemon", ipc->ranks_on_this_gpu()));
  } else if (!no_nccl.empty()) {
    note(group, "no NCCL, long messages between GPUs go in pieces: " + no_nccl);
  } else if (options.path == Path::kAuto) {
    ipc->add_nccl(make_nccl(o, group, base, setup));
  }
  if (!options.fuse) ipc->keep_sums_apart();
  if (options.measure_algorithms && !shared) ipc->measure(setup);
  if (group.rank == 0) log::fact("comm", "group {}: {} between {} GPUs; {}", group.name, ipc->name(), group.size, ipc->ways());
  return ipc;
}

}  // namespace

std::unique_ptr<Communicator> make_device_communicator(const DeviceCommOptions& options, Store& store) {
  const CommOptions o = complete(options.group);
  const Deadline setup = Deadline::after(o.setup_timeout);
  auto base = std::make_shared<Base>(options.device, options.stream);
  const CommGroup group = whole_group(o);
  const GroupCommunicator::Options call_options{o.timeout, /*check_sequence=*/false};
  if (o.size == 1) return std::make_unique<GroupCommunicator>(group, std::make_unique<LoneGpu>(base->stream), call_options, base);
  CommOptions control = o;
  control.group_name += "/gpu";
  control.comm_dtype = CommDType::kFull;
  control.measure_algorithms = false;
  base->control = make_communicator(control, store);
  base->control->set_timeout(o.setup_timeout);
  auto way = choose_way(options, o, group, *base, setup);
  return std::make_unique<GroupCommunicator>(group, std::move(way), call_options, base);
}

}  // namespace tutti

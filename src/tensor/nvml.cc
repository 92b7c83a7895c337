#include "tensor/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <optional>

namespace tutti::nvml {
namespace {

constexpr int kSuccess = 0, kUncorrected = 1, kSinceBoot = 0, kGpuSensor = 0;
constexpr unsigned long long kXidEvents = 8;

struct Throttling {
  unsigned long long bit;
  const char* reason;
};
constexpr Throttling kThrottling[] = {{0x4, "power cap"}, {0x8, "hardware"}, {0x20, "temperature"}, {0x40, "temperature, hardware"}, {0x80, "power brake"}};

std::optional<Api> open_library() {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::nullopt;
  Api api{};
  bool complete = true;
  const auto find = [&](auto*& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    complete = complete && function != nullptr;
  };
  find(api.Init, "nvmlInit_v2");
  find(api.DeviceGetCount, "nvmlDeviceGetCount_v2");
  find(api.DeviceGetHandleByIndex, "nvmlDeviceGetHandleByIndex_v2");
  find(api.DeviceGetHandleByPciBusId, "nvmlDeviceGetHandleByPciBusId_v2");
  find(api.DeviceGetUUID, "nvmlDeviceGetUUID");
  find(api.DeviceGetMemoryInfo, "nvmlDeviceGetMemoryInfo");
  find(api.DeviceGetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses_v3");
  find(api.DeviceGetTotalEccErrors, "nvmlDeviceGetTotalEccErrors");
  find(api.DeviceGetCurrentClocksThrottleReasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  find(api.DeviceGetTemperature, "nvmlDeviceGetTemperature");
  find(api.DeviceGetPowerUsage, "nvmlDeviceGetPowerUsage");
  find(api.EventSetCreate, "nvmlEventSetCreate");
  find(api.DeviceRegisterEvents, "nvmlDeviceRegisterEvents");
  find(api.EventSetWait, "nvmlEventSetWait_v2");
  if (!complete || api.Init() != kSuccess) return std::nullopt;
  return api;
}

std::string process_name(unsigned pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

const Api* library() {
  static const std::optional<Api> api = open_library();
  return api ? &*api : nullptr;
}

std::string other_processes(const Api* api, const std::string& pci_bus_id) {
  Device device = nullptr;
  if (api == nullptr || api->DeviceGetHandleByPciBusId(pci_bus_id.c_str(), &device) != kSuccess) return "";
  std::vector<ProcessInfo> all(256);
  auto count = static_cast<unsigned>(all.size());
  if (api->DeviceGetComputeRunningProcesses(device, &count, all.data()) != kSuccess) return "";
  std::string text;
  for (unsigned i = 0; i < count; ++i) {
    const ProcessInfo& process = all[i];
    if (process.pid == static_cast<unsigned>(::getpid())) continue;
    const std::string name = process_name(process.pid);
    text += fmt::format("{}PID {}{}", text.empty() ? "" : ", ", process.pid, name.empty() ? "" : " (" + name + ")");
    if (process.bytes != ~0ULL) text += fmt::format(" {:.2f} GiB", static_cast<double>(process.bytes) / (1 << 30));
  }
  return text;
}

Monitor::Monitor(const Api* api) : api_(api) {
  unsigned count = 0;
  if (api_ == nullptr || api_->DeviceGetCount(&count) != kSuccess) return;
  if (api_->EventSetCreate(&events_) != kSuccess) events_ = nullptr;
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu;
    char uuid[96] = "";
    if (api_->DeviceGetHandleByIndex(i, &gpu.device) != kSuccess) continue;
    (void)api_->DeviceGetUUID(gpu.device, uuid, sizeof uuid);
    gpu.labels = fmt::format("gpu=\"{}\",uuid=\"{}\"", i, uuid);
    if (events_ != nullptr) (void)api_->DeviceRegisterEvents(gpu.device, kXidEvents, events_);
    gpus_.push_back(std::move(gpu));
  }
}

void Monitor::collect_xids() {
  EventData event{};
  while (events_ != nullptr && api_->EventSetWait(events_, &event, 0) == kSuccess) {
    for (Gpu& gpu : gpus_) {
      if (gpu.device == event.device && event.type == kXidEvents) ++gpu.xids[event.data];
    }
  }
}

std::string Monitor::metrics() {
  const std::lock_guard lock(mutex_);
  if (gpus_.empty()) return "";
  collect_xids();
  std::string text;
  const auto begin = [&](const char* name, const char* type, const char* help) {
    text += fmt::format("# HELP tutti:{0} {1}\n# TYPE tutti:{0} {2}\n", name, help, type);
  };
  // `value` gives nothing where the GPU does not know.
  const auto row = [&](const char* name, const char* type, const char* help, const auto& value) {
    begin(name, type, help);
    for (const Gpu& gpu : gpus_) {
      if (const std::optional<double> v = value(gpu.device)) text += fmt::format("tutti:{}{{{}}} {}\n", name, gpu.labels, *v);
    }
  };
  using Value = std::optional<double>;
  row("gpu_memory_used_bytes", "gauge", "Of the whole GPU, by all processes.", [&](Device device) {
    Memory memory{};
    return api_->DeviceGetMemoryInfo(device, &memory) == kSuccess ? Value(static_cast<double>(memory.used)) : std::nullopt;
  });
  row("gpu_temperature_celsius", "gauge", "Of the chip.", [&](Device device) {
    unsigned celsius = 0;
    return api_->DeviceGetTemperature(device, kGpuSensor, &celsius) == kSuccess ? Value(celsius) : std::nullopt;
  });
  row("gpu_power_watts", "gauge", "Drawn now.", [&](Device device) {
    unsigned milliwatts = 0;
    return api_->DeviceGetPowerUsage(device, &milliwatts) == kSuccess ? Value(milliwatts / 1e3) : std::nullopt;
  });
  row("gpu_ecc_uncorrected_errors_total", "counter", "Memory errors since the driver was loaded that could not be corrected.", [&](Device device) {
    unsigned long long count = 0;
    return api_->DeviceGetTotalEccErrors(device, kUncorrected, kSinceBoot, &count) == kSuccess ? Value(static_cast<double>(count)) : std::nullopt;
  });
  begin("gpu_throttled", "gauge", "1 while clocks are held down for this reason.");
  for (const Gpu& gpu : gpus_) {
    unsigned long long bits = 0;
    if (api_->DeviceGetCurrentClocksThrottleReasons(gpu.device, &bits) != kSuccess) continue;
    for (const auto& [bit, reason] : kThrottling) {
      text += fmt::format("tutti:gpu_throttled{{{},reason=\"{}\"}} {}\n", gpu.labels, reason, (bits & bit) != 0 ? 1 : 0);
    }
  }
  begin("gpu_xid_errors_total", "counter", "Errors that the driver reported since the start, by their Xid.");
  for (const Gpu& gpu : gpus_) {
    for (const auto& [xid, count] : gpu.xids) text += fmt::format("tutti:gpu_xid_errors_total{{{},xid=\"{}\"}} {}\n", gpu.labels, xid, count);
  }
  return text;
}

}  // namespace tutti::nvml

// What NVIDIA's management library (NVML, part of the driver) says of this machine's GPUs: who holds their memory, and
// whether they are in order. Opened when first asked for; where it is missing there is nothing to say. Tests put their own
// functions in. No header of NVML or CUDA is needed. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tutti::nvml {

using Device = struct OpaqueDevice*;
using EventSet = struct OpaqueEventSet*;

// The functions that are used, with the types of NVML's ABI. 0 is success.
struct Memory {
  unsigned long long total, free, used;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct EventData {
  Device device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
struct Api {
  int (*Init)();
  int (*DeviceGetCount)(unsigned* count);
  int (*DeviceGetHandleByIndex)(unsigned index, Device* device);
  int (*DeviceGetHandleByPciBusId)(const char* id, Device* device);
  int (*DeviceGetUUID)(Device device, char* text, unsigned size);
  int (*DeviceGetMemoryInfo)(Device device, Memory* memory);
  int (*DeviceGetComputeRunningProcesses)(Device device, unsigned* count, ProcessInfo* all);
  int (*DeviceGetTotalEccErrors)(Device device, int kind, int counter, unsigned long long* count);
  int (*DeviceGetCurrentClocksThrottleReasons)(Device device, unsigned long long* bits);
  int (*DeviceGetTemperature)(Device device, int sensor, unsigned* celsius);
  int (*DeviceGetPowerUsage)(Device device, unsigned* milliwatts);
  int (*EventSetCreate)(EventSet* set);
  int (*DeviceRegisterEvents)(Device device, unsigned long long types, EventSet set);
  int (*EventSetWait)(EventSet set, EventData* data, unsigned timeout_ms);
};

// The driver's library; nullptr where it is missing.
const Api* library();

// "PID 812 (python3) 40.21 GiB, ..." of all processes but this one that hold memory of the GPU at this PCI address; "" for
// nobody. Processes of other containers are seen by their numbers alone.
std::string other_processes(const Api* api, const std::string& pci_bus_id);

// Watches all GPUs of this machine from its making on.
class Monitor {
 public:
  explicit Monitor(const Api* api);

  // Rows of /metrics; "" without a GPU. Collects what has happened since the last call.
  std::string metrics();

 private:
  struct Gpu {
    Device device = nullptr;
    std::string labels;  // {gpu="0",uuid="GPU-..."}
    std::map<unsigned long long, int> xids;  // of the driver's errors: how often each was seen
  };
  void collect_xids();

  const Api* api_;
  std::mutex mutex_;
  std::vector<Gpu> gpus_;
  EventSet events_ = nullptr;
};

}  // namespace tutti::nvml

// What is read from NVML and how it is said, over a library of the test's own.
#include "tensor/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <deque>

namespace tutti::nvml {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Two GPUs; the second one knows no ECC.
Device device(uintptr_t number) { return reinterpret_cast<Device>(number + 1); }
std::deque<EventData> events;

Api fake() {
  Api api{};
  api.DeviceGetCount = [](unsigned* count) { return *count = 2, 0; };
  api.DeviceGetHandleByIndex = [](unsigned index, Device* to) { return *to = device(index), 0; };
  api.DeviceGetHandleByPciBusId = [](const char* id, Device* to) { return *to = device(0), std::strcmp(id, "0000:01:00.0") == 0 ? 0 : 6; };
  api.DeviceGetUUID = [](Device d, char* text, unsigned) { return std::strcpy(text, d == device(0) ? "GPU-a" : "GPU-b"), 0; };
  api.DeviceGetMemoryInfo = [](Device, Memory* memory) { return *memory = {100, 60, 40}, 0; };
  api.DeviceGetComputeRunningProcesses = [](Device, unsigned* count, ProcessInfo* all) {
    all[0] = {static_cast<unsigned>(::getpid()), 1ULL << 30, 0, 0};
    all[1] = {1, 3ULL << 30, 0, 0};
    all[2] = {4000000000U, ~0ULL, 0, 0};  // of another container: no name, no size
    return *count = 3, 0;
  };
  api.DeviceGetTotalEccErrors = [](Device d, int kind, int, unsigned long long* count) { return *count = 7, d == device(0) && kind == 1 ? 0 : 3; };
  api.DeviceGetCurrentClocksThrottleReasons = [](Device d, unsigned long long* bits) { return *bits = d == device(0) ? 0x20 | 0x1 : 0, 0; };
  api.DeviceGetTemperature = [](Device, int, unsigned* celsius) { return *celsius = 61, 0; };
  api.DeviceGetPowerUsage = [](Device, unsigned* milliwatts) { return *milliwatts = 250500, 0; };
  api.EventSetCreate = [](EventSet* set) { return *set = reinterpret_cast<EventSet>(1), 0; };
  api.DeviceRegisterEvents = [](Device, unsigned long long types, EventSet) { return types == 8 ? 0 : 2; };
  api.EventSetWait = [](EventSet, EventData* data, unsigned) {
    if (events.empty()) return 10;
    *data = events.front();
    events.pop_front();
    return 0;
  };
  return api;
}

TEST(Nvml, NamesTheOtherProcesses) {
  const Api api = fake();
  std::string text = other_processes(&api, "0000:01:00.0");
  EXPECT_THAT(text, AllOf(HasSubstr("PID 1 ("), HasSubstr(" 3.00 GiB, PID 4000000000"), Not(HasSubstr("PID " + std::to_string(::getpid())))));
  EXPECT_TRUE(text.ends_with("PID 4000000000")) << text;
  EXPECT_EQ(other_processes(&api, "0000:02:00.0"), "");
  EXPECT_EQ(other_processes(nullptr, "0000:01:00.0"), "");
}

TEST(Nvml, MetricsOfEveryGpu) {
  const Api api = fake();
  Monitor monitor(&api);
  EXPECT_THAT(monitor.metrics(),
              AllOf(HasSubstr("\ntutti:gpu_memory_used_bytes{gpu=\"0\",uuid=\"GPU-a\"} 40\n"), HasSubstr("tutti:gpu_power_watts{gpu=\"1\",uuid=\"GPU-b\"} 250.5\n"),
                    HasSubstr("tutti:gpu_ecc_uncorrected_errors_total{gpu=\"0\",uuid=\"GPU-a\"} 7\n"),
                    Not(HasSubstr("tutti:gpu_ecc_uncorrected_errors_total{gpu=\"1\"")),
                    HasSubstr("tutti:gpu_throttled{gpu=\"0\",uuid=\"GPU-a\",reason=\"temperature\"} 1\n"),
                    HasSubstr("tutti:gpu_throttled{gpu=\"1\",uuid=\"GPU-b\",reason=\"temperature\"} 0\n"), Not(HasSubstr("xid="))));
}

TEST(Nvml, CountsXids) {
  const Api api = fake();
  Monitor monitor(&api);
  events = {{device(1), 8, 79, 0, 0}, {device(1), 8, 79, 0, 0}, {device(0), 8, 31, 0, 0}};
  (void)monitor.metrics();
  EXPECT_THAT(monitor.metrics(), AllOf(HasSubstr("tutti:gpu_xid_errors_total{gpu=\"1\",uuid=\"GPU-b\",xid=\"79\"} 2\n"),
                                       HasSubstr("tutti:gpu_xid_errors_total{gpu=\"0\",uuid=\"GPU-a\",xid=\"31\"} 1\n")));
}

TEST(Nvml, NothingWithoutTheLibrary) { EXPECT_EQ(Monitor(nullptr).metrics(), ""); }

}  // namespace
}  // namespace tutti::nvml

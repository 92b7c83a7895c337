// Stands in for comm/cuda_ipc in a build without CUDA.
#include "comm/device_bench.h"

#include "base/error.h"

namespace tutti {

struct DeviceBench::Impl {};

int visible_gpus() { return 0; }

DeviceBench::DeviceBench(Device device) {
  throw ConfigError("device " + to_string(device) + ": this program was built without CUDA (configure with -DTUTTI_CUDA=ON)");
}
DeviceBench::~DeviceBench() = default;
void* DeviceBench::stream() const { return nullptr; }
std::shared_ptr<Buffer> DeviceBench::random(size_t) { return nullptr; }
std::vector<double> DeviceBench::microseconds(int, int, const std::function<void()>&, const std::function<void()>&) { return {}; }

}  // namespace tutti

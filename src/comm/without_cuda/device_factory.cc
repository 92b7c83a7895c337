// Stands in for comm/cuda_ipc in a build without CUDA.
#include "comm/device_factory.h"

#include "base/error.h"

namespace tutti {

std::unique_ptr<Communicator> make_device_communicator(const DeviceCommOptions& options, Store&) {
  throw ConfigError("device " + to_string(options.device) +
                    ": this program was built without CUDA (configure with -DTUTTI_CUDA=ON, or use --device cpu)");
}

}  // namespace tutti

// Stands in for tensor/cuda in a build without CUDA.
#include "tensor/device_memory.h"

#include "base/error.h"

namespace tutti::cuda {
namespace {

[[noreturn]] void refuse() {
  throw ConfigError("device cuda: this program was built without CUDA (configure with -DTUTTI_CUDA=ON, or use --device cpu)");
}

}  // namespace

std::shared_ptr<Buffer> allocate(size_t, Device) { refuse(); }
std::shared_ptr<Buffer> allocate_pinned(size_t) { refuse(); }
void copy_async(void*, const void*, size_t, void*) { refuse(); }
void zero_async(void*, size_t, void*) { refuse(); }
void synchronize(void*) { refuse(); }

}  // namespace tutti::cuda

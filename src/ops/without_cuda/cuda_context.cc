// Stands in for ops/cuda in a build without CUDA.
#include "ops/cuda_context.h"

#include "base/check.h"
#include "base/error.h"

namespace tutti {

std::shared_ptr<CudaContext> make_cuda_context(Device device, DType, CudaOptions) {
  throw ConfigError("device " + to_string(device) +
                    ": this program was built without CUDA (configure with -DTUTTI_CUDA=ON, or use --device cpu)");
}

void* cuda_stream(const CudaContext&) { TUTTI_CHECK_FAILED("a CudaContext in a build without CUDA"); }
std::string kernel_choices_key(const CudaContext&) { TUTTI_CHECK_FAILED("a CudaContext in a build without CUDA"); }
std::string kernel_choices(const CudaContext&) { TUTTI_CHECK_FAILED("a CudaContext in a build without CUDA"); }
void take_kernel_choices(CudaContext&, const std::string&, bool) { TUTTI_CHECK_FAILED("a CudaContext in a build without CUDA"); }
void end_upload(CudaContext&) { TUTTI_CHECK_FAILED("a CudaContext in a build without CUDA"); }

}  // namespace tutti

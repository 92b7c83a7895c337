// Stands in for ops/cuda in a build without CUDA.
#include "ops/kernel_table.h"

namespace tutti {

const KernelTable* cuda_kernel_table() { return nullptr; }

}  // namespace tutti

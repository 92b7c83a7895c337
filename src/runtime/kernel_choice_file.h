// GPUs: what timing has found about the kernels of products is kept in a file for later starts, and is the same on all
// ranks of a tensor-parallel group once it has started. A product of a number of tokens that comes first while serving is timed by
// each rank itself: no two ranks compute the same one. Worker thread only.
#pragma once

#include "comm/communicator.h"
#include "ops/cuda_context.h"

namespace tutti {

// Before products are timed: the group's first rank reads the file, all take what it says. Throws CommError.
void recall_kernel_choices(CudaContext& cuda, Communicator& tp);
// Afterwards: the first rank's choices become those of all, and the file's.
void keep_kernel_choices(CudaContext& cuda, Communicator& tp);

}  // namespace tutti

// Stands in for runtime/cuda in a build without CUDA.
#include "runtime/graph_runner.h"

#include "base/check.h"

namespace tutti {

GraphRunner::~GraphRunner() = default;
void GraphRunner::capture(int64_t, const std::function<void()>&) { TUTTI_CHECK_FAILED("a graph in a build without CUDA"); }
void GraphRunner::launch(int64_t) { TUTTI_CHECK_FAILED("a graph in a build without CUDA"); }

}  // namespace tutti

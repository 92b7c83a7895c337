#include "runtime/graph_runner.h"

#include <cuda_runtime_api.h>

#include <string>

#include "base/check.h"
#include "base/error.h"
#include "ops/cuda_context.h"

namespace tutti {
namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw DeviceError(std::string(what) + ": " + cudaGetErrorName(status) + ": " + cudaGetErrorString(status));
}

}  // namespace

GraphRunner::~GraphRunner() {
  for (const auto& [rows, graph] : graphs_) (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

void GraphRunner::capture(int64_t rows, const std::function<void()>& work) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream(*ctx_.cuda));
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    work();
  } catch (...) {
    (void)cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t exec = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
  (void)cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  check(cudaGraphUpload(exec, stream), "cudaGraphUpload");
  CHECK(graphs_.emplace(rows, exec).second);
}

void GraphRunner::launch(int64_t rows) {
  const auto stream = static_cast<cudaStream_t>(cuda_stream(*ctx_.cuda));
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graphs_.at(rows)), stream), "cudaGraphLaunch");
}

}  // namespace tutti

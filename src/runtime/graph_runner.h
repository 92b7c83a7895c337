// CUDA graphs of decode steps, one for each padded number of rows: a step of a large model is some 250 kernels, and
// launching them one by one takes the host longer than a GPU needs to run them. Worker thread only. A build without CUDA
// has the same class, which nobody makes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "ops/context.h"

namespace tutti {

class GraphRunner {
 public:
  explicit GraphRunner(const Context& ctx) : ctx_(ctx) {}
  ~GraphRunner();
  GraphRunner(const GraphRunner&) = delete;
  GraphRunner& operator=(const GraphRunner&) = delete;

  // Records what `work` launches on the context's stream, without running it. Throws DeviceError.
  void capture(int64_t rows, const std::function<void()>& work);
  // The smallest captured number of rows that is at least `rows`; 0 = none.
  int64_t padded(int64_t rows) const;
  // Runs the graph of exactly `rows` rows on the context's stream.
  void launch(int64_t rows);

  // Rows that there are graphs for, up to `most`: 1, 2, 4, then every eighth.
  static std::vector<int64_t> sizes(int64_t most);

 private:
  const Context& ctx_;
  std::map<int64_t, void*> graphs_;  // cudaGraphExec_t
};

}  // namespace tutti

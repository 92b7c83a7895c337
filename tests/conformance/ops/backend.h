// One device and activation type under test: tensors with random values whose float64 twins are exact, poisoned outputs
// between guards, and comparison by relative error.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/cuda_context.h"
#include "ops/ops.h"

namespace tutti {

struct BackendParam {
  DeviceType device;
  DType activations;
};

// The CPU in F32; when this program was built with CUDA, also the first GPU in BF16 and F16.
std::vector<BackendParam> backends();
std::string backend_name(const testing::TestParamInfo<BackendParam>& info);

// A tensor on the device, and what its elements are.
struct Values {
  Tensor tensor;
  std::vector<double> values;
};

class OpsConformance : public testing::TestWithParam<BackendParam> {
 protected:
  OpsConformance();
  void SetUp() override;
  void TearDown() override;

  DType activations() const { return GetParam().activations; }
  bool on_gpu() const { return GetParam().device == DeviceType::kCuda; }
  // The relative error that `factor` roundings may make.
  double tolerance(double factor = 1.0) const;

  // From here on another context with these options (GPUs only).
  void use(CudaOptions options);

  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  // Normal random values, rounded to `dtype`.
  Values normals(std::initializer_list<int64_t> shape, DType dtype, double deviation = 1.0);
  Values normals(std::initializer_list<int64_t> shape) { return normals(shape, activations()); }
  // The same on the CPU, as weights come out of files.
  Values host_normals(std::initializer_list<int64_t> shape, DType dtype, double deviation = 1.0);
  Tensor floats(const std::vector<float>& values);
  // The values as a tensor of the type and shape [n, k] that `like.tensor` has, on the device.
  Values on_device(const Values& like);
  // rms_norm of x [num_tokens, k] as an input, with what linear_add() leaves for it.
  ops::Input left_for_norm(const Values& x, const Values& norm, double eps);
  Tensor ints(const std::vector<int32_t>& values);
  Tensor longs(const std::vector<int64_t>& values);
  // NaN everywhere, with guards on both sides that read() looks at.
  Tensor poisoned(std::initializer_list<int64_t> shape, DType dtype);
  Tensor poisoned(std::initializer_list<int64_t> shape) { return poisoned(shape, activations()); }

  // The elements, after everything launched so far; fails when a guard was written.
  std::vector<double> read(const Tensor& tensor);

  std::vector<std::byte> bytes(const Tensor& tensor) { return bytes_of(tensor.data_as<std::byte>(), tensor.bytes()); }
  // A copy on the same device.
  Tensor clone(const Tensor& tensor);

  Context ctx_;
  std::mt19937 random_;

 private:
  struct Guarded {
    const std::byte* begin;
    size_t bytes;
    std::shared_ptr<Buffer> buffer;
  };
  Tensor to_device(const Tensor& host);
  std::vector<std::byte> bytes_of(const std::byte* from, size_t bytes);

  unsigned seed_;
  std::unique_ptr<ThreadPool> pool_;
  std::shared_ptr<CudaContext> cuda_;
  std::unique_ptr<Arena> arena_;
  std::vector<Guarded> guarded_;
};

// |actual - expected| / |expected| over all elements is at most `tolerance`, and no element is off by more than 20 times
// that many root mean squares. NaN never passes.
void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance, const std::string& what);

// What `dtype` makes of x.
double rounded(double x, DType dtype);

}  // namespace tutti

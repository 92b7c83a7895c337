#include "tests/conformance/ops/backend.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "ops/kernel_table.h"
#include "tensor/device_memory.h"
#include "tensor/half.h"

namespace tutti {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr size_t kArenaBytes = size_t{256} << 20;

// The nearest E4M3, even ones on ties, 448 at most.
uint8_t float8_e4m3(double x) {
  const double size = std::min(std::abs(x), 448.0);
  int low = 0, high = 0x7e;  // the positive ones rise with their bits
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (float8_e4m3_to_float(static_cast<uint8_t>(middle)) <= size ? low : high) = middle;
  }
  const double below = size - float8_e4m3_to_float(static_cast<uint8_t>(low)), above = float8_e4m3_to_float(static_cast<uint8_t>(high)) - size;
  const int best = below < above || (below == above && low % 2 == 0) ? low : high;
  return static_cast<uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

void put(DType dtype, double x, std::byte* to) {
  if (dtype == DType::kF8E4M3) {
    *to = std::byte{float8_e4m3(x)};
    return;
  }
  const auto f = static_cast<float>(x);
  if (dtype == DType::kF32) std::memcpy(to, &f, 4);
  const uint16_t h = dtype == DType::kBF16 ? float_to_bfloat16(f) : float_to_half(f);
  if (dtype != DType::kF32) std::memcpy(to, &h, 2);
}

double get(DType dtype, const std::byte* from) {
  if (dtype == DType::kF8E4M3) return float8_e4m3_to_float(std::to_integer<uint8_t>(*from));
  if (dtype == DType::kF32) {
    float f;
    std::memcpy(&f, from, 4);
    return f;
  }
  if (dtype == DType::kI32) {
    int32_t i;
    std::memcpy(&i, from, 4);
    return i;
  }
  uint16_t h;
  std::memcpy(&h, from, 2);
  return dtype == DType::kBF16 ? bfloat16_to_float(h) : half_to_float(h);
}

Tensor empty_like(const Tensor& t, Device device) {
  switch (t.rank()) {
    case 1: return Tensor::empty({t.size(0)}, t.dtype(), device);
    case 2: return Tensor::empty({t.size(0), t.size(1)}, t.dtype(), device);
    case 3: return Tensor::empty({t.size(0), t.size(1), t.size(2)}, t.dtype(), device);
    default: return Tensor::empty({t.size(0), t.size(1), t.size(2), t.size(3)}, t.dtype(), device);
  }
}

CudaOptions with_times_or_not(CudaOptions options) {
  options.time_products = std::getenv("TUTTI_CONFORMANCE_UNTIMED") == nullptr;
  return options;
}

// Contexts are slow to make: one a type for the whole program.
std::shared_ptr<CudaContext> shared_cuda_context(DType activations) {
  static std::shared_ptr<CudaContext> contexts[2];
  auto& context = contexts[activations == DType::kF16 ? 1 : 0];
  if (context == nullptr) context = make_cuda_context(Device::cuda(0), activations, with_times_or_not({}));
  return context;
}

}  // namespace

std::vector<BackendParam> backends() {
  std::vector<BackendParam> all = {{DeviceType::kCpu, DType::kF32}};
  if (cuda_kernel_table() != nullptr) {
    all.push_back({DeviceType::kCuda, DType::kBF16});
    all.push_back({DeviceType::kCuda, DType::kF16});
  }
  return all;
}

std::string backend_name(const testing::TestParamInfo<BackendParam>& info) {
  return std::string(info.param.device == DeviceType::kCpu ? "cpu" : "cuda") + "_" + std::string(dtype_name(info.param.activations));
}

double rounded(double x, DType dtype) {
  std::byte bytes[4];
  put(dtype, x, bytes);
  return get(dtype, bytes);
}

OpsConformance::OpsConformance() : seed_(std::random_device{}()) {
  random_.seed(seed_);
  RecordProperty("seed", std::to_string(seed_));
}

void OpsConformance::SetUp() {
  if (on_gpu()) {
    try {
      cuda_ = shared_cuda_context(activations());
    } catch (const DeviceError& e) {
      GTEST_SKIP() << e.what();
    }
    ctx_.device = Device::cuda(0);
    ctx_.cuda = cuda_.get();
  } else {
    pool_ = std::make_unique<ThreadPool>(2);
    ctx_.pool = pool_.get();
  }
  arena_ = std::make_unique<Arena>(kArenaBytes, ctx_.device);
  ctx_.arena = arena_.get();
}

void OpsConformance::use(CudaOptions options) {
  cuda::synchronize(cuda_stream(*cuda_));
  cuda_ = make_cuda_context(Device::cuda(0), activations(), with_times_or_not(options));
  ctx_.cuda = cuda_.get();
}

void OpsConformance::TearDown() {
  if (cuda_ != nullptr) cuda::synchronize(cuda_stream(*cuda_));
  if (HasFailure()) std::printf("seed %u\n", seed_);
}

double OpsConformance::tolerance(double factor) const {
  if (activations() == DType::kF32) return 2e-6 * factor;
  return (activations() == DType::kBF16 ? 0x1p-8 : 0x1p-11) * factor;  // half a unit in the last place of 1
}

Tensor OpsConformance::to_device(const Tensor& host) {
  if (!on_gpu()) return host;
  const Tensor there = empty_like(host, ctx_.device);
  cuda::copy_async(there.data(), host.data(), host.bytes(), cuda_stream(*cuda_));
  cuda::synchronize(cuda_stream(*cuda_));
  return there;
}

Values OpsConformance::host_normals(std::initializer_list<int64_t> shape, DType dtype, double deviation) {
  Values v;
  v.tensor = Tensor::empty(shape, dtype);
  v.values.resize(static_cast<size_t>(v.tensor.numel()));
  std::normal_distribution<double> normal(0.0, deviation);
  const size_t element = dtype_bytes(dtype, 1);
  auto* bytes = v.tensor.data_as<std::byte>();
  for (size_t i = 0; i < v.values.size(); ++i) {
    put(dtype, normal(random_), bytes + i * element);
    v.values[i] = get(dtype, bytes + i * element);
  }
  return v;
}

Values OpsConformance::normals(std::initializer_list<int64_t> shape, DType dtype, double deviation) {
  Values v = host_normals(shape, dtype, deviation);
  v.tensor = to_device(v.tensor);
  return v;
}

Tensor OpsConformance::floats(const std::vector<float>& values) {
  const Tensor host = Tensor::empty({static_cast<int64_t>(values.size())}, DType::kF32);
  std::copy(values.begin(), values.end(), host.data_as<float>());
  return to_device(host);
}

Values OpsConformance::on_device(const Values& like) {
  const Tensor host = Tensor::empty({like.tensor.size(0), like.tensor.size(1)}, like.tensor.dtype());
  const size_t element = dtype_bytes(host.dtype(), 1);
  for (size_t i = 0; i < like.values.size(); ++i) put(host.dtype(), like.values[i], host.data_as<std::byte>() + i * element);
  return {to_device(host), like.values};
}

ops::Input OpsConformance::left_for_norm(const Values& x, const Values& norm, double eps) {
  const int64_t tokens = x.tensor.size(0), k = x.tensor.size(1), parts = ops::norm_parts(k);
  Values scaled = x, squares{Tensor::empty({tokens, parts}, DType::kF32), std::vector<double>(static_cast<size_t>(tokens * parts))};
  for (size_t i = 0; i < x.values.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / k, column = static_cast<int64_t>(i) % k;
    scaled.values[i] *= norm.values[static_cast<size_t>(column)];
    squares.values[static_cast<size_t>(row * parts + column / ops::kNormPart)] += x.values[i] * x.values[i];
  }
  ops::Input input(x.tensor, norm.tensor, eps);
  input.scaled = on_device(scaled).tensor;
  input.squares = on_device(squares).tensor;
  return input;
}

Tensor OpsConformance::ints(const std::vector<int32_t>& values) {
  const Tensor host = Tensor::empty({static_cast<int64_t>(values.size())}, DType::kI32);
  std::copy(values.begin(), values.end(), host.data_as<int32_t>());
  return to_device(host);
}

Tensor OpsConformance::longs(const std::vector<int64_t>& values) {
  const Tensor host = Tensor::empty({static_cast<int64_t>(values.size())}, DType::kI64);
  std::copy(values.begin(), values.end(), host.data_as<int64_t>());
  return to_device(host);
}

Tensor OpsConformance::poisoned(std::initializer_list<int64_t> shape, DType dtype) {
  int64_t numel = 1;
  for (int64_t n : shape) numel *= n;
  const size_t bytes = dtype_bytes(dtype, numel);
  const auto buffer = Buffer::allocate(bytes + 2 * kGuardBytes, ctx_.device);
  const std::vector<std::byte> poison(buffer->bytes(), std::byte{0xff});
  if (on_gpu()) {
    cuda::copy_async(buffer->data(), poison.data(), poison.size(), cuda_stream(*cuda_));
    cuda::synchronize(cuda_stream(*cuda_));
  } else {
    std::memcpy(buffer->data(), poison.data(), poison.size());
  }
  guarded_.push_back({buffer->data() + kGuardBytes, bytes, buffer});
  return Tensor::view(buffer->data() + kGuardBytes, shape, dtype, ctx_.device, buffer);
}

std::vector<std::byte> OpsConformance::bytes_of(const std::byte* from, size_t bytes) {
  std::vector<std::byte> host(bytes);
  if (on_gpu()) {
    cuda::copy_async(host.data(), from, bytes, cuda_stream(*cuda_));
    cuda::synchronize(cuda_stream(*cuda_));
  } else {
    std::memcpy(host.data(), from, bytes);
  }
  return host;
}

Tensor OpsConformance::clone(const Tensor& tensor) {
  Tensor host = empty_like(tensor, Device::cpu());
  const std::vector<std::byte> all = bytes(tensor);
  std::memcpy(host.data(), all.data(), all.size());
  return to_device(host);
}

std::vector<double> OpsConformance::read(const Tensor& tensor) {
  EXPECT_TRUE(tensor.is_contiguous());
  const auto bytes = bytes_of(tensor.data_as<std::byte>(), tensor.bytes());
  const size_t element = dtype_bytes(tensor.dtype(), 1);
  std::vector<double> values(static_cast<size_t>(tensor.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = get(tensor.dtype(), bytes.data() + i * element);
  for (const Guarded& g : guarded_) {
    if (g.begin != tensor.data_as<std::byte>()) continue;
    for (const std::byte* side : {g.begin - kGuardBytes, g.begin + g.bytes}) {
      for (std::byte b : bytes_of(side, kGuardBytes)) {
        EXPECT_EQ(b, std::byte{0xff}) << "written " << (side < g.begin ? "before" : "behind") << " the output";
        if (b != std::byte{0xff}) break;
      }
    }
  }
  return values;
}

void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double error = 0, total = 0, worst = 0;
  size_t worst_at = 0, not_numbers = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double off = actual[i] - expected[i];
    if (!std::isfinite(off)) {
      if (not_numbers++ == 0) worst_at = i;
      continue;
    }
    error += off * off;
    total += expected[i] * expected[i];
    if (not_numbers == 0 && std::abs(off) > worst) worst = std::abs(off), worst_at = i;
  }
  const double scale = std::sqrt(total / static_cast<double>(std::max<size_t>(actual.size(), 1)));
  const double relative = std::sqrt(error / std::max(total, 1e-300));
  const bool ok = not_numbers == 0 && relative <= tolerance && worst <= 20 * tolerance * scale;
  EXPECT_TRUE(ok) << what << ": relative error " << relative << ", allowed " << tolerance << "; " << not_numbers << " of "
                  << actual.size() << " are not numbers; worst at " << worst_at << ": " << actual[worst_at] << ", expected "
                  << expected[worst_at] << " (root mean square " << scale << ")";
}

}  // namespace tutti

#include "ops/cuda/context.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/cublas_lt.h"
#include "ops/cuda/product_choice.h"
#include "ops/cuda/upload.h"
#include "tensor/device_memory.h"

namespace tutti {

using cuda::check;

CudaContext::CudaContext(Device device, DType activations, CudaOptions options) : activations_(activations), options_(options) {
  CHECK(activations == DType::kBF16 || activations == DType::kF16);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || device.index >= count) {
    throw DeviceError("cannot use " + to_string(device) + ": " +
                      (status == cudaSuccess ? "this machine shows " + std::to_string(count) + " GPUs (see CUDA_VISIBLE_DEVICES)"
                                             : std::string(cudaGetErrorString(status)) + " (is the NVIDIA driver loaded?)"));
  }
  check(cudaSetDevice(device.index), "cudaSetDevice");
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, device.index), "cudaDeviceGetAttribute");
    return value;
  };
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device.index), "cudaGetDeviceProperties");
  name_ = properties.name;
  num_sms_ = attribute(cudaDevAttrMultiProcessorCount);
  capability_ = 10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
  if (options.batch_invariant && (capability_ != 90 || options.fp8_weight_only)) {
    throw ConfigError("batch invariance on " + to_string(device) + ": " +
                      (options.fp8_weight_only ? "it excludes weight-only FP8" : "its products need a Hopper GPU (compute capability 9.0), this one has " +
                                                                                     std::to_string(capability_ / 10) + "." + std::to_string(capability_ % 10)));
  }
  shared_memory_ = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  if (options.shared_memory > 0) shared_memory_ = std::min(shared_memory_, options.shared_memory);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  counters_ = Tensor::zeros({kCounters}, DType::kI32, device);
  product_choice_ = std::make_unique<cuda::ProductChoice>(device, options.time_products);
  cublas_lt_ = std::make_unique<cuda::CublasLt>(device, stream_, product_choice_->flush(), options.time_products);
  if (capability_ >= 90) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found),
          "cudaGetDriverEntryPointByVersion");
    if (found != cudaDriverEntryPointSuccess) throw DeviceError("the NVIDIA driver lacks cuTensorMapEncodeTiled: it is older than CUDA 12");
    encode_tiled_ = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  }
}

CudaContext::~CudaContext() {
  cublas_lt_.reset();
  (void)cudaStreamSynchronize(stream_);
  (void)cudaStreamDestroy(stream_);
}

cuda::Upload& CudaContext::upload() {
  if (upload_ == nullptr) upload_ = std::make_unique<cuda::Upload>();
  return *upload_;
}

void CudaContext::end_upload() {
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  upload_.reset();
}

namespace {

CUtensorMap checked(decltype(&cuTensorMapEncodeTiled) encode, const void* data, uint32_t rank, const cuuint64_t* sizes, const cuuint64_t* strides,
                    const cuuint32_t* box) {
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, rank, const_cast<void*>(data), sizes, strides, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) TUTTI_CHECK_FAILED("cuTensorMapEncodeTiled: error " + std::to_string(result));
  return map;
}

}  // namespace

CUtensorMap CudaContext::tensor_map(const void* data, int64_t rows, int64_t columns, int64_t row_bytes, int box_rows) const {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[2] = {128, static_cast<cuuint32_t>(box_rows)};
  return checked(encode_tiled_, data, 2, sizes, strides, box);
}

CUtensorMap CudaContext::tensor_map(const void* data, int64_t groups, int64_t rows, int64_t row_bytes, int box_groups, int box_rows) const {
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(groups)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(rows * row_bytes)};
  const cuuint32_t box[3] = {128, static_cast<cuuint32_t>(box_rows), static_cast<cuuint32_t>(box_groups)};
  return checked(encode_tiled_, data, 3, sizes, strides, box);
}

std::shared_ptr<CudaContext> make_cuda_context(Device device, DType activations, CudaOptions options) {
  return std::make_shared<CudaContext>(device, activations, options);
}

void* cuda_stream(const CudaContext& cuda) { return cuda.stream(); }

void end_upload(CudaContext& cuda) { cuda.end_upload(); }

}  // namespace tutti

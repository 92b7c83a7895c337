#include "ops/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/product_choice.h"

namespace tutti::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kCandidates = 8;
constexpr size_t kTokens = 4;       // its place in a Key
constexpr int64_t kNearTokens = 2;  // times as many tokens are near enough

void check_lt(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw DeviceError(std::string(what) + ": cuBLASLt status " + std::to_string(status));
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    case DType::kF8E4M3: return CUDA_R_8F_E4M3;
    case DType::kF32: return CUDA_R_32F;
    default: TUTTI_CHECK_FAILED("no cuBLASLt type for " + std::string(dtype_name(dtype)));
  }
}

}  // namespace

// The functions that are used, by their names in the library.
struct CublasLt::Api {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoCheck) check;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

// The library stays open for the life of the process: unloading CUDA libraries is not safe.
std::unique_ptr<CublasLt::Api> CublasLt::open() {
  void* library = nullptr;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    throw ConfigError("cannot open libcublasLt.so.13 or .12 (" + std::string(dlerror()) +
                      "): install libcublas-13-0 of the CUDA repository, or pip's nvidia-cublas, and put its folder into "
                      "LD_LIBRARY_PATH");
  }
  auto api = std::make_unique<Api>();
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) throw ConfigError(std::string("libcublasLt has no ") + name + ": it is older than CUDA 12");
  };
  find(api->create, "cublasLtCreate");
  find(api->version, "cublasLtGetVersion");
  find(api->destroy, "cublasLtDestroy");
  find(api->matmul, "cublasLtMatmul");
  find(api->heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(api->check, "cublasLtMatmulAlgoCheck");
  find(api->desc_create, "cublasLtMatmulDescCreate");
  find(api->desc_destroy, "cublasLtMatmulDescDestroy");
  find(api->desc_set, "cublasLtMatmulDescSetAttribute");
  find(api->layout_create, "cublasLtMatrixLayoutCreate");
  find(api->layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(api->preference_create, "cublasLtMatmulPreferenceCreate");
  find(api->preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(api->preference_set, "cublasLtMatmulPreferenceSetAttribute");
  return api;
}

// The descriptors of one product. cuBLASLt counts by columns: there W^T is [k, rows], x is [k, tokens], out [rows, tokens].
struct CublasLt::Product {
  Product(const Api& functions, const LinearCall& call) : api(functions) {
    check_lt(api.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (call.w_scales != nullptr) {
      const cublasLtMatmulMatrixScale_t by_vector = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, by_vector);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, by_vector);
      set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.w_scales);
      set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.x_scales);
    }
    layout(a, call.dtype, call.k, call.rows, call.k);
    layout(b, call.dtype, call.k, call.num_tokens, call.x_stride);
    layout(d, call.out_type, call.rows, call.num_tokens, call.out_stride);
  }
  ~Product() {
    for (cublasLtMatrixLayout_t one : {a, b, d}) {
      if (one != nullptr) api.layout_destroy(one);
    }
    if (desc != nullptr) api.desc_destroy(desc);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t which, const Value& value) {
    check_lt(api.desc_set(desc, which, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
  }
  void layout(cublasLtMatrixLayout_t& to, DType dtype, int64_t rows, int64_t columns, int64_t stride) {
    check_lt(api.layout_create(&to, data_type(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), stride),
             "cublasLtMatrixLayoutCreate");
  }

  const Api& api;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
};

CublasLt::CublasLt(Device device, cudaStream_t stream, const Tensor& flush, bool times)
    : api_(open()), stream_(stream), times_(times), flush_(flush), workspace_(Tensor::empty({static_cast<int64_t>(kWorkspaceBytes)}, DType::kU8, device)) {
  check_lt(api_->create(&handle_), "cublasLtCreate");
  check_lt(api_->preference_create(&preference_), "cublasLtMatmulPreferenceCreate");
  const size_t most = kWorkspaceBytes;
  check_lt(api_->preference_set(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most),
           "cublasLtMatmulPreferenceSetAttribute");
}

size_t CublasLt::version() const { return api_->version(); }

CublasLt::~CublasLt() {
  if (preference_ != nullptr) api_->preference_destroy(preference_);
  if (handle_ != nullptr) api_->destroy(handle_);
}

cublasStatus_t CublasLt::run(const LinearCall& call, const Product& product, const cublasLtMatmulAlgo_t& algo) {
  const float one = 1.0f, beta = call.add ? 1.0f : 0.0f;
  return api_->matmul(handle_, product.desc, &one, call.w, product.a, call.x, product.b, &beta, call.out, product.d, call.out,
                      product.d, &algo, workspace_.data(), kWorkspaceBytes, stream_);
}

const cublasLtMatmulAlgo_t* CublasLt::of_more_tokens(const Key& key, const Product& product) {
  const auto tokens_of = [](const Key& k) { return std::get<kTokens>(k); };
  const cublasLtMatmulAlgo_t* best = nullptr;
  int64_t fewest = kNearTokens * tokens_of(key);
  for (const auto& [other, algo] : chosen_) {
    Key same = other;
    std::get<kTokens>(same) = tokens_of(key);
    if (same != key || tokens_of(other) < tokens_of(key) || tokens_of(other) > fewest) continue;
    cublasLtMatmulHeuristicResult_t result{};
    if (api_->check(handle_, product.desc, product.a, product.b, product.d, product.d, &algo, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > kWorkspaceBytes) {
      continue;
    }
    best = &algo;
    fewest = tokens_of(other);
  }
  return best;
}

cublasLtMatmulAlgo_t CublasLt::fastest(const LinearCall& call, const Product& product) {
  std::vector<cublasLtMatmulHeuristicResult_t> offers(kCandidates);
  int count = 0;
  const cublasStatus_t status = api_->heuristic(handle_, product.desc, product.a, product.b, product.d, product.d, preference_,
                                                kCandidates, offers.data(), &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
    throw DeviceError("cuBLASLt has no algorithm for a product of " + std::string(dtype_name(call.dtype)) + " [" +
                      std::to_string(call.num_tokens) + ", " + std::to_string(call.k) + "] x [" + std::to_string(call.k) + ", " +
                      std::to_string(call.rows) + "] (status " + std::to_string(status) + ")");
  }
  int best = 0;
  LinearCall trial = call;
  bool can_time = count > 1 && !is_capturing(stream_);
  if (call.add) {  // what is added to is not to be touched by trials
    trial.out = flush_.data();
    can_time = can_time && dtype_bytes(call.out_type, call.num_tokens * call.out_stride) <= flush_.bytes();
  }
  if (can_time) {
    double best_us = 1e30;
    for (int i = 0; i < count; ++i) {
      // One that is offered but refused is never the best. The output is overwritten each time.
      const auto offer = [&] { return run(trial, product, offers[static_cast<size_t>(i)].algo) == CUBLAS_STATUS_SUCCESS; };
      const double us = time_cold(stream_, flush_, offer, best_us);
      if (us < kClearlyFaster * best_us) best_us = us, best = i;
      if (!times_ && us < 1e30) break;
    }
  }
  return offers[static_cast<size_t>(best)].algo;
}

void CublasLt::multiply(const LinearCall& call) {
  const Product product(*api_, call);
  const Key key{call.dtype,     call.out_type, call.rows, call.k, call.num_tokens, call.x_stride, call.out_stride,
                call.w_scales != nullptr, call.add};
  auto known = chosen_.find(key);
  if (known == chosen_.end()) {
    const cublasLtMatmulAlgo_t* of_others = of_more_tokens(key, product);
    const bool fits = of_others != nullptr && run(call, product, *of_others) == CUBLAS_STATUS_SUCCESS;
    known = chosen_.emplace(key, fits ? *of_others : fastest(call, product)).first;
    if (fits) return;
  }
  check_lt(run(call, product, known->second), "cublasLtMatmul");
}

}  // namespace tutti::cuda

// What timing has found, as JSON and back. A key is a list of numbers; an algorithm of cuBLASLt is the 64 bytes that its
// documentation allows to keep for the same version.
#include <array>
#include <cstring>

#include "base/json.h"
#include "ops/cuda/context.h"
#include "ops/cuda/cublas_lt.h"
#include "ops/cuda/product_choice.h"

namespace tutti {
namespace {

constexpr int kKernels = 4;  // raise it when a kernel of products becomes faster, slower or another one

template <typename Key>
Json numbers_of(const Key& key) {
  return std::apply([](const auto&... part) { return Json::array({static_cast<int64_t>(part)...}); }, key);
}

template <typename... Parts>
void read_key(const Json& numbers, std::tuple<Parts...>& key) {
  size_t i = 0;
  std::apply([&](auto&... part) { ((part = static_cast<std::remove_reference_t<decltype(part)>>(numbers.at(i++).get<int64_t>())), ...); }, key);
}

using AlgorithmWords = std::array<uint64_t, sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t)>;

// Rows of [key, what was chosen].
template <typename Choices, typename Read>
void take(const Json& rows, Choices& choices, bool all, const Read& read) {
  for (const Json& row : rows) {
    typename Choices::key_type key;
    read_key(row.at(0), key);
    if (all) choices.insert_or_assign(key, read(row.at(1)));
    else choices.emplace(key, read(row.at(1)));
  }
}

}  // namespace

std::string kernel_choices_key(const CudaContext& cuda) {
  return cuda.name() + ", " + std::to_string(cuda.num_sms()) + " multiprocessors, cuBLASLt " + std::to_string(cuda.cublas_lt().version()) +
         ", kernels " + std::to_string(kKernels);
}

std::string kernel_choices(const CudaContext& cuda) {
  Json products = Json::array(), algorithms = Json::array();
  for (const auto& [key, kernel] : cuda.product_choice().choices()) products.push_back({numbers_of(key), static_cast<int>(kernel)});
  for (const auto& [key, algorithm] : cuda.cublas_lt().choices()) {
    AlgorithmWords words;
    std::memcpy(words.data(), &algorithm, sizeof algorithm);
    algorithms.push_back({numbers_of(key), words});
  }
  return dump_json({{"for", kernel_choices_key(cuda)}, {"products", products}, {"algorithms", algorithms}});
}

void take_kernel_choices(CudaContext& cuda, const std::string& text, bool all) {
  try {
    const Json json = parse_json(text, "kernel choices");
    if (json.at("for") != kernel_choices_key(cuda)) return;
    take(json.at("products"), cuda.product_choice().choices(), all,
         [](const Json& value) { return static_cast<cuda::ProductKernel>(value.get<int>()); });
    take(json.at("algorithms"), cuda.cublas_lt().choices(), all, [](const Json& value) {
      const auto words = value.get<AlgorithmWords>();
      cublasLtMatmulAlgo_t algorithm;
      std::memcpy(&algorithm, words.data(), sizeof algorithm);
      return algorithm;
    });
  } catch (const std::exception&) {  // a file that was cut short, say: products are timed again
  }
}

}  // namespace tutti

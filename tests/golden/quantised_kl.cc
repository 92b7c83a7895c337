// How far a real model's predictions move when its matrices are quantised: prints, for each type, the mean KL divergence
// from the same model in float32, at TP 1 and 2, and the parts of it: what the rounding of the weights alone does, and what
// computing with them does beyond that (divergence from the rounded weights in float32). The matrices of the given GGUF
// file are first decoded to float32.
//
//   quantised_kl MODEL.gguf [TOKENS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "golden/divergence.h"
#include "parallel/thread_cluster.h"
#include "parallel/tiny_model.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"
#include "text/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/gguf_writer.h"

namespace tutti::testing {
namespace {

constexpr const char* kText =
    "A language model is served by several machines at once. Each of them holds a part of every matrix, computes its part "
    "of each product, and sends what the others need. The first law of such a system is that all of them do the same steps "
    "in the same order; the second is that whoever is late must be named. Water boils at 100 degrees, Paris is the capital "
    "of France, and def add(a, b): return a + b is a function of two arguments. Once upon a time there was a small model "
    "that had read a great many books, but had understood only a few of them, and so it answered every question politely "
    "and most of them wrongly, until somebody compared its answers with those of a larger one.";

void add_array(GgufWriter& writer, const std::string& key, const Json& value) {
  if (value.empty()) return;
  if (value.front().is_string()) {
    writer.add_strings(key, value.get<std::vector<std::string>>());
  } else if (value.front().is_number_float()) {
    writer.add_f32s(key, value.get<std::vector<float>>());
  } else if (value.front().is_number_integer()) {
    writer.add_i32s(key, value.get<std::vector<int32_t>>());
  }
}

void copy_metadata(const Json& metadata, GgufWriter& writer) {
  for (const auto& [key, value] : metadata.items()) {
    if (value.is_string()) writer.add_string(key, value.get<std::string>());
    if (value.is_boolean()) writer.add_bool(key, value.get<bool>());
    if (value.is_number_integer()) writer.add_u32(key, value.get<uint32_t>());
    if (value.is_number_float()) writer.add_f32(key, value.get<float>());
    if (value.is_array()) add_array(writer, key, value);
  }
}

Tensor converted(const Tensor& tensor, DType dtype) {
  const int64_t columns = tensor.size(tensor.rank() - 1), rows = tensor.numel() / columns;
  const Tensor in = tensor.rank() == 1 ? tensor.reshape({1, columns}) : tensor;
  const Tensor out = Tensor::empty({rows, columns}, dtype);
  std::vector<float> values(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    dequantize_row(in.dtype(), in.row<std::byte>(r), columns, values.data());
    quantize_row(values.data(), columns, dtype, out.row<std::byte>(r));
  }
  return tensor.rank() == 1 ? out.reshape({columns}) : out;
}

// Writes the model with its matrices in `dtype`, those whose rows are not whole blocks in Q8_0. The share of weights that
// got `dtype`.
double write_model(const Checkpoint& model, DType dtype, const std::string& path) {
  GgufWriter writer;
  copy_metadata(model.metadata(), writer);
  double all = 0, typed = 0;
  for (const auto& [name, tensor] : model.tensors()) {
    if (tensor.rank() == 1) {
      writer.add_tensor(name, converted(tensor, DType::kF32));
      continue;
    }
    const bool fits = tensor.size(1) % dtype_info(dtype).block_size == 0;
    all += static_cast<double>(tensor.numel());
    typed += fits ? static_cast<double>(tensor.numel()) : 0;
    writer.add_tensor(name, converted(tensor, fits ? dtype : DType::kQ8_0));
  }
  writer.write(path);
  return typed / all;
}

std::vector<std::vector<float>> rows(const std::string& path, const std::vector<int32_t>& prompt, int tp) {
  EngineConfig engine = test_engine(path, tp);
  engine.cache.kv_cache_dtype = "float32";
  return logprob_rows(run_cluster(engine, make_schedule({scored_request(prompt, 1)})).at(1));
}

int run(const std::string& path, size_t num_tokens) {
  const auto model = Checkpoint::open(path);
  std::vector<int32_t> prompt = Tokenizer::from_gguf(model->metadata())->encode(kText);
  prompt.resize(std::min({prompt.size(), num_tokens, size_t{127}}));
  const TinyModel temporary(Json::object());
  const std::string file = temporary.path() + "/model.gguf", decoded = temporary.path() + "/decoded.gguf";
  write_model(*model, DType::kF32, file);
  const auto expected = rows(file, prompt, 1);
  std::printf("%zu positions\n", expected.size());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ6_K, DType::kQ5_K, DType::kQ5_1, DType::kQ5_0, DType::kQ4_K,
                            DType::kQ4_1, DType::kQ4_0, DType::kIQ4_NL, DType::kIQ4_XS, DType::kQ3_K, DType::kQ2_K}) {
    const double share = write_model(*model, dtype, file);
    std::printf("%-7s of %3.0f %% of the weights: mean KL", std::string(dtype_name(dtype)).c_str(), 100 * share);
    std::vector<std::vector<float>> found[2];
    for (int tp : {1, 2}) {
      found[tp - 1] = rows(file, prompt, tp);
      std::printf(" %.2e (TP=%d)", mean_divergence(expected, found[tp - 1]), tp);
    }
    write_model(*Checkpoint::open(file), DType::kF32, decoded);
    const auto rounded = rows(decoded, prompt, 1);
    std::printf("; weights %.2e, computing %.2e\n", mean_divergence(expected, rounded), mean_divergence(rounded, found[0]));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tutti::testing

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: quantised_kl MODEL.gguf [TOKENS]\n");
    return 2;
  }
  try {
    return tutti::testing::run(argv[1], argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 127);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "quantised_kl: %s\n", e.what());
    return 1;
  }
}

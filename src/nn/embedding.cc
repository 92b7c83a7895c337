#include "nn/embedding.h"

#include "ops/ops.h"

namespace tutti {
namespace {

Parameter vocabulary_rows(const BuildContext& build, const std::string& name) {
  return {name + ".weight", build.config.vocab_size, build.config.hidden_size, ShardRule::rows(build.cut.vocab)};
}

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(const BuildContext& build, const std::string& name)
    : vocab_begin_(build.cut.vocab.begin), tp_(build.tp) {
  build.parameters.add_matrix(*table_, {vocabulary_rows(build, name)});
}

void VocabParallelEmbedding::forward(const Context& ctx, const ops::TokenIds& tokens, const Tensor& out) const {
  ops::embedding(ctx, tokens, *table_, vocab_begin_, out);
  tp_.all_reduce(out.data(), out.numel(), out.dtype());
}

ParallelLMHead::ParallelLMHead(const BuildContext& build, const std::string& name) {
  auto table = std::make_shared<PackedWeight>();
  build.parameters.add_matrix(*table, {vocabulary_rows(build, name)});
  table_ = std::move(table);
}

void ParallelLMHead::forward(const Context& ctx, const ops::Input& x, const Tensor& logits) const {
  ops::linear(ctx, x, *table_, Tensor(), logits);
}

}  // namespace tutti

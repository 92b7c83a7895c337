// The same models as GGUF files: other names, other metadata, other order of rows.
#include <gtest/gtest.h>

#include "golden/golden.h"
#include "golden/gguf_model.h"
#include "parallel/thread_cluster.h"
#include "parallel/tiny_model.h"

namespace tutti::testing {
namespace {

class GgufGoldens : public ::testing::TestWithParam<std::string> {};

std::vector<std::vector<float>> prompt_rows(const std::string& path, const Golden& golden, int tp) {
  EngineConfig engine = test_engine(path, tp);
  engine.dtype = "float32";
  const auto schedule = make_schedule({scored_request(golden.prompt, 1)});
  return logprob_rows(run_cluster(engine, schedule).at(1));
}

TEST_P(GgufGoldens, SameAsTheFolder) {
  const Golden golden = load_golden(GetParam());
  const TinyModel temporary(Json::object());
  const std::string path = temporary.path() + "/model.gguf";
  write_gguf_model(golden.folder, DType::kF32, path);
  const auto expected = prompt_rows(golden.folder, golden, 1);
  for (int tp : {1, 2}) EXPECT_LT(relative_error(expected, prompt_rows(path, golden, tp)).worst, 1e-4) << "TP=" << tp;
}

INSTANTIATE_TEST_SUITE_P(Families, GgufGoldens, ::testing::ValuesIn(golden_names()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tutti::testing

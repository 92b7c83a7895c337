#include "bench/serve_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

LoadResult answer(double start_s, double ttft_s, int tokens, double itl_s) {
  LoadResult r{.ok = true, .start_s = start_s, .ttft_s = ttft_s, .latency_s = ttft_s + (tokens - 1) * itl_s};
  r.itls_s.assign(static_cast<size_t>(tokens - 1), itl_s);
  r.text = "x";
  r.prompt_tokens = 10;
  r.output_tokens = tokens;
  return r;
}

TEST(ServeReport, CountsAndTimes) {
  const std::vector<LoadResult> results = {answer(0, 0.1, 5, 0.02), answer(0.5, 0.3, 11, 0.04), {.error = "refused"}};
  const ServeReport report({{}, {}, {}}, results, 2.0, {.goodput = {{"ttft", 200}}});
  EXPECT_EQ(report.completed(), 2);
  EXPECT_EQ(report.failed(), 1);
  const Json json = report.json(true);
  EXPECT_EQ(json["total_input_tokens"], 20);
  EXPECT_EQ(json["total_output_tokens"], 16);
  EXPECT_DOUBLE_EQ(json["request_throughput"], 1.0);
  EXPECT_DOUBLE_EQ(json["request_goodput"], 0.5);
  EXPECT_DOUBLE_EQ(json["output_throughput"], 8.0);
  EXPECT_DOUBLE_EQ(json["mean_ttft_ms"], 200.0);
  EXPECT_DOUBLE_EQ(json["std_ttft_ms"], 100.0);
  EXPECT_NEAR(json["median_tpot_ms"].get<double>(), 30.0, 1e-9);
  EXPECT_NEAR(json["p99_itl_ms"].get<double>(), 40.0, 1e-9);
  EXPECT_EQ(json["max_concurrent_requests"], 2);
  EXPECT_FALSE(json.contains("mean_e2el_ms"));
  EXPECT_EQ(json["errors"], (Json{"", "", "refused"}));
  EXPECT_EQ(json["output_lens"], (Json{5, 11, 0}));
  EXPECT_FALSE(report.json(false).contains("errors"));
}

TEST(ServeReport, TheBlockThatPeopleKnow) {
  const std::vector<LoadResult> results = {answer(0, 0.1, 5, 0.02)};
  const ServeReport report({{}}, results, 2.0, {.metrics = {"ttft", "e2el"}, .percentiles = {50, 99.9}, .rate = 4, .max_concurrency = 8});
  const std::string text = report.text();
  EXPECT_THAT(text, HasSubstr("============ Serving Benchmark Result ============\n"
                              "Successful requests:                     1         \n"
                              "Failed requests:                         0         \n"
                              "Maximum request concurrency:             8         \n"
                              "Request rate configured (RPS):           4.00      \n"
                              "Benchmark duration (s):                  2.00      \n"
                              "Total input tokens:                      10        \n"
                              "Total generated tokens:                  5         \n"
                              "Request throughput (req/s):              0.50      \n"
                              "Output token throughput (tok/s):         2.50      \n"
                              "Peak output token throughput (tok/s):    5.00      \n"
                              "Peak concurrent requests:                1.00      \n"
                              "Total token throughput (tok/s):          7.50      \n"
                              "---------------Time to First Token----------------\n"
                              "Mean TTFT (ms):                          100.00    \n"
                              "Median TTFT (ms):                        100.00    \n"
                              "P50 TTFT (ms):                           100.00    \n"
                              "P99.9 TTFT (ms):                         100.00    \n"));
  EXPECT_THAT(text, HasSubstr("End-to-end Latency"));
  EXPECT_TRUE(text.ends_with(std::string(50, '=') + "\n"));
}

TEST(ServeReport, NothingAnsweredIsNoDivisionByZero) {
  const std::vector<LoadResult> results = {{.error = "refused"}};
  const ServeReport report({{}}, results, 0.0, {});
  EXPECT_EQ(report.json(false)["mean_ttft_ms"], 0);
  EXPECT_THAT(report.text(), HasSubstr("Failed requests:                         1"));
}

TEST(ServeReport, UnknownNamesAreRefused) {
  EXPECT_THROW(ServeReport({}, {}, 1, {.metrics = {"tttf"}}), ConfigError);
  EXPECT_THROW(ServeReport({}, {}, 1, {.goodput = {{"itl", 3}}}), ConfigError);
}

}  // namespace
}  // namespace tutti

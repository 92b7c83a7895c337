#include "protocol/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"

namespace tutti::wire {
namespace {

using ::testing::HasSubstr;

SchedulerOutput full_step() {
  SamplingParams sampling;
  sampling.temperature = 0.7;
  sampling.seed = 42;
  sampling.stop_token_ids = {1, 2};
  sampling.logit_bias = {{3, -1.5f}, {4, 2.0f}};
  sampling.allowed_token_ids = {5};
  sampling.bad_words = {{6, 7}, {}};
  sampling.logprobs = 3;
  sampling.grammar = GrammarBytes(std::string("some\0bytes", 10));
  SchedulerOutput step;
  step.step = 7;
  step.new_requests = {{.id = 11, .token_ids = {1, 2, 3}, .num_prompt_tokens = 3, .sampling = sampling}, {.id = 12}};
  step.scheduled = {{.id = 11, .num_tokens = 3, .num_computed_tokens = 0, .new_block_ids = {4, 9}, .samples = true},
                    {.id = 5, .num_tokens = 1, .num_computed_tokens = 1LL << 40}};
  step.dropped = {3, ~0ULL};
  return step;
}

ModelRunnerOutput full_output() {
  ModelRunnerOutput output;
  output.step = 7;
  output.sampled = {{.id = 11, .token_id = 99, .logprobs = {{99, -0.5f, 1}, {4, -2.0f, 2}}, .prompt_logprobs = {{}, {{1, -1.0f, 1}}}},
                    {.id = 12, .has_token = false}};
  output.timings = {{.rank = 0, .total_us = 10, .compute_us = 8, .comm_us = 1.5f, .comm_bytes = 4096}, {.rank = 1}};
  return output;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const IoError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Wire, RoundTripKeepsEveryField) {
  EXPECT_EQ(decode_scheduler_output(encode(full_step())), full_step());
  EXPECT_EQ(decode_model_runner_output(encode(full_output())), full_output());
  EXPECT_EQ(decode_scheduler_output(encode(SchedulerOutput{})), SchedulerOutput{});
  EXPECT_EQ(decode_model_runner_output(encode(ModelRunnerOutput{})), ModelRunnerOutput{});
}

TEST(Wire, EveryTruncationIsRefused) {
  const std::string step = encode(full_step());
  for (size_t n = 0; n < step.size(); ++n) {
    EXPECT_THROW(decode_scheduler_output(std::string_view(step).substr(0, n)), IoError) << n;
  }
  const std::string output = encode(full_output());
  for (size_t n = 0; n < output.size(); ++n) {
    EXPECT_THROW(decode_model_runner_output(std::string_view(output).substr(0, n)), IoError) << n;
  }
}

TEST(Wire, BytesAfterTheEndAreRefused) {
  const std::string bytes = encode(full_step()) + "x";
  EXPECT_THAT(message_of([&] { decode_scheduler_output(bytes); }), HasSubstr("1 bytes after its last field"));
}

TEST(Wire, ALyingCountIsRefusedBeforeAnythingIsAllocated) {
  std::string bytes = encode(SchedulerOutput{});
  const size_t count_at = 4 + 2 + 2 + 8;  // header, step
  const uint32_t lie = 0xffffffff;
  std::memcpy(bytes.data() + count_at, &lie, sizeof lie);
  EXPECT_THAT(message_of([&] { decode_scheduler_output(bytes); }), HasSubstr("a list of 4294967295 items"));
  const uint32_t one = 1;  // needs 102 bytes, 8 are left
  std::memcpy(bytes.data() + count_at, &one, sizeof one);
  EXPECT_THAT(message_of([&] { decode_scheduler_output(bytes); }), HasSubstr("a list of 1 items where 8 bytes are left"));
}

TEST(Wire, TheSmallestItemsMatchTheBytesThatACountIsCheckedAgainst) {
  SchedulerOutput step;
  const size_t empty = encode(step).size();
  step.new_requests.resize(1);
  EXPECT_EQ(encode(step).size() - empty, 106u);
  EXPECT_EQ(decode_scheduler_output(encode(step)), step);
  step.scheduled.resize(1);
  EXPECT_EQ(encode(step).size() - empty, 106u + 25u);
  ModelRunnerOutput output;
  const size_t empty_output = encode(output).size();
  output.sampled.resize(1);
  EXPECT_EQ(encode(output).size() - empty_output, 21u);
  output.timings.resize(1);
  EXPECT_EQ(encode(output).size() - empty_output, 21u + 36u);
}

TEST(Wire, AnotherVersionKindOrMagicIsNamed) {
  std::string bytes = encode(full_step());
  EXPECT_THAT(message_of([&] { decode_model_runner_output(bytes); }), HasSubstr("kind 1, expected 2"));
  bytes[4] = 99;
  EXPECT_THAT(message_of([&] { decode_scheduler_output(bytes); }), HasSubstr("version 99, expected 2"));
  bytes[0] = 'x';
  EXPECT_THAT(message_of([&] { decode_scheduler_output(bytes); }), HasSubstr("not a step message"));
}

TEST(Wire, ABooleanIsZeroOrOne) {
  SchedulerOutput step;
  step.scheduled.resize(1);
  std::string bytes = encode(step);
  bytes[4 + 2 + 2 + 8 + 4 + 4 + 24] = 2;  // header, step, two counts, the row's fields before `samples`
  EXPECT_THAT(message_of([&] { decode_scheduler_output(bytes); }), HasSubstr("2 where 0 or 1 is expected"));
}

}  // namespace
}  // namespace tutti::wire

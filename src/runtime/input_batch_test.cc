#include "runtime/input_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class InputBatchTest : public testing::Test {
 protected:
  Arena arena_{1 << 16, Device::cpu()};
  InputBatch batch_{4};

  template <typename T>
  static std::vector<T> values(const Tensor& t) {
    return {t.data_as<T>(), t.data_as<T>() + t.numel()};
  }
};

SchedulerOutput step(int64_t number) {
  SchedulerOutput s;
  s.step = number;
  return s;
}

TEST_F(InputBatchTest, TensorsOfAMixedStep) {
  SchedulerOutput first = step(1);
  first.new_requests = {{7, {10, 11, 12, 13, 14}, 5, {}}, {8, {20, 21}, 2, {}}};
  first.scheduled = {{7, 3, 0, {5}, false}, {8, 2, 0, {2}, true}};
  batch_.apply(first);
  const StepInputs inputs = batch_.build(arena_, first);
  EXPECT_THAT(values<int32_t>(inputs.ids), ElementsAre(10, 11, 12, 20, 21));
  EXPECT_THAT(values<int32_t>(inputs.meta.positions), ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(values<int64_t>(inputs.meta.slot_mapping), ElementsAre(20, 21, 22, 8, 9));
  EXPECT_THAT(values<int32_t>(inputs.meta.query_start), ElementsAre(0, 3, 5));
  EXPECT_THAT(values<int32_t>(inputs.meta.seq_lens), ElementsAre(3, 2));
  ASSERT_EQ(inputs.logit_rows.size(), 1u);
  EXPECT_EQ(inputs.logit_rows[0].row, 4);

  batch_.find(8)->append(22);
  SchedulerOutput second = step(2);
  second.scheduled = {{8, 1, 2, {}, true}, {7, 2, 3, {6}, true}};
  batch_.apply(second);
  const StepInputs next = batch_.build(arena_, second);
  EXPECT_THAT(values<int32_t>(next.ids), ElementsAre(22, 13, 14));
  EXPECT_THAT(values<int64_t>(next.meta.slot_mapping), ElementsAre(10, 23, 24));
  EXPECT_THAT(values<int32_t>(next.meta.block_table), ElementsAre(2, 0, 5, 6));
  EXPECT_EQ(next.meta.max_query_len, 2);
  EXPECT_EQ(next.meta.max_seq_len, 5);
}

TEST_F(InputBatchTest, PaddedRowsAreNobodys) {
  SchedulerOutput first = step(1);
  first.new_requests = {{7, {10, 11}, 2, {}}, {8, {20, 21, 22}, 3, {}}};
  first.scheduled = {{7, 2, 0, {5}, true}, {8, 3, 0, {2}, true}};
  batch_.apply(first);
  batch_.find(7)->append_pending(0);
  batch_.find(8)->append_pending(1);
  batch_.find(7)->settle(2, 12);
  SchedulerOutput second = step(2);
  second.scheduled = {{7, 1, 2, {}, true}, {8, 1, 3, {}, true}};
  batch_.apply(second);
  const StepInputs inputs = batch_.build(arena_, second, 4);
  EXPECT_EQ(inputs.meta.num_seqs, 4);
  EXPECT_EQ(inputs.meta.num_tokens, 4);
  EXPECT_EQ(inputs.meta.max_query_len, 1);
  EXPECT_THAT(values<int32_t>(inputs.ids), ElementsAre(12, -2, 0, 0));
  EXPECT_THAT(values<int32_t>(inputs.meta.query_start), ElementsAre(0, 1, 2, 2, 2));
  EXPECT_THAT(values<int32_t>(inputs.meta.seq_lens), ElementsAre(3, 4, 0, 0));
  EXPECT_THAT(values<int64_t>(inputs.meta.slot_mapping), ElementsAre(22, 11, -1, -1));
  EXPECT_THAT(values<int32_t>(inputs.logit_row_ids), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(inputs.logit_rows.size(), 2u);
}

TEST_F(InputBatchTest, PromptLogprobRowsNameTheNextToken) {
  SchedulerOutput s = step(1);
  SamplingParams p;
  p.prompt_logprobs = 1;
  s.new_requests = {{1, {10, 11, 12}, 3, p}};
  s.scheduled = {{1, 3, 0, {0}, true}};
  batch_.apply(s);
  const auto rows = batch_.build(arena_, s).logit_rows;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].prompt_target, 11);
  EXPECT_EQ(rows[1].prompt_target, 12);
  EXPECT_EQ(rows[2].prompt_target, -1);
  EXPECT_TRUE(rows[2].samples);
}

TEST_F(InputBatchTest, GapsAndStrangersAreRefused) {
  batch_.apply(step(1));
  EXPECT_THAT([&] { batch_.apply(step(3)); }, ThrowsMessage<CommError>(HasSubstr("step 3 came after step 1")));
  SchedulerOutput s = step(2);
  s.scheduled = {{99, 1, 0, {0}, true}};
  EXPECT_THAT([&] { batch_.apply(s); }, ThrowsMessage<CommError>(HasSubstr("request 99, which was never sent")));
}

TEST_F(InputBatchTest, DroppedRequestsAndNewEpochsAreForgotten) {
  SchedulerOutput s = step(1);
  s.new_requests = {{1, {10}, 1, {}}, {2, {20}, 1, {}}};
  batch_.apply(s);
  const uint64_t before = batch_.find(1)->incarnation;
  s = step(2);
  s.dropped = {1, 2};
  s.new_requests = {{1, {10, 11}, 1, {}}};
  batch_.apply(s);
  EXPECT_EQ(batch_.find(2), nullptr);
  EXPECT_NE(batch_.find(1)->incarnation, before);
  EXPECT_EQ(batch_.find(1)->num_output_tokens(), 1);
  batch_.apply(step(1));
  EXPECT_EQ(batch_.num_requests(), 0u);
}

}  // namespace
}  // namespace tutti

#include "runtime/input_batch.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ops/ops.h"

namespace tutti {

void RequestState::append(int32_t token) {
  token_ids.push_back(token);
  if (history) ++history->output_counts[token];
}

void RequestState::settle(int64_t position, int32_t token) {
  int32_t& pending = token_ids.at(static_cast<size_t>(position));
  CHECK_LT(pending, 0);
  pending = token;
}

void InputBatch::apply(const SchedulerOutput& step) {
  if (step.step == 1) {  // a new epoch
    requests_.clear();
  } else if (step.step != last_step_ + 1) {
    throw CommError("step " + std::to_string(step.step) + " came after step " + std::to_string(last_step_) +
                    ": steps were lost, all requests have to be sent again");
  }
  last_step_ = step.step;
  for (RequestId id : step.dropped) requests_.erase(id);
  for (const NewRequestData& fresh : step.new_requests) {
    RequestState request;
    request.id = fresh.id;
    request.incarnation = next_incarnation_++;
    request.token_ids = fresh.token_ids;
    request.num_prompt_tokens = fresh.num_prompt_tokens;
    request.sampling = fresh.sampling;
    if (fresh.sampling.needs_history()) {
      request.history = std::make_unique<TokenHistory>();
      for (size_t i = 0; i < fresh.token_ids.size(); ++i) {
        const bool prompt = i < static_cast<size_t>(fresh.num_prompt_tokens);
        ++(prompt ? request.history->prompt_counts : request.history->output_counts)[fresh.token_ids[i]];
      }
    }
    requests_.insert_or_assign(fresh.id, std::move(request));
  }
  for (const ScheduledRequest& part : step.scheduled) {
    auto& blocks = scheduled(step, part.id).block_ids;
    blocks.insert(blocks.end(), part.new_block_ids.begin(), part.new_block_ids.end());
  }
}

RequestState* InputBatch::find(RequestId id) {
  const auto it = requests_.find(id);
  return it == requests_.end() ? nullptr : &it->second;
}

RequestState* InputBatch::find(RequestId id, uint64_t incarnation) {
  RequestState* request = find(id);
  return request != nullptr && request->incarnation == incarnation ? request : nullptr;
}

RequestState& InputBatch::scheduled(const SchedulerOutput& step, RequestId id) {
  RequestState* request = find(id);
  if (request == nullptr) {
    throw CommError("step " + std::to_string(step.step) + " schedules request " + std::to_string(id) +
                    ", which was never sent: all requests have to be sent again");
  }
  return *request;
}

int64_t InputBatch::depends_on(const SchedulerOutput& step) {
  int64_t latest = 0;
  for (const ScheduledRequest& part : step.scheduled) latest = std::max(latest, scheduled(step, part.id).last_sampled_step);
  return latest;
}

StepInputs InputBatch::build(Arena& arena, const SchedulerOutput& step, int64_t padded_rows) {
  const auto own_seqs = static_cast<int64_t>(step.scheduled.size());
  const int64_t own_tokens = step.num_tokens();
  CHECK(padded_rows == 0 || (own_tokens == own_seqs && own_tokens <= padded_rows));
  const int64_t num_tokens = std::max(own_tokens, padded_rows);
  const int64_t num_seqs = std::max(own_seqs, padded_rows);
  int64_t max_blocks = 1;
  StepInputs inputs;
  AttentionMetadata& meta = inputs.meta;
  for (const ScheduledRequest& part : step.scheduled) {
    max_blocks = std::max(max_blocks, (part.num_computed_tokens + part.num_tokens + block_size_ - 1) / block_size_);
    meta.max_query_len = std::max(meta.max_query_len, part.num_tokens);
    meta.max_seq_len = std::max(meta.max_seq_len, part.num_computed_tokens + part.num_tokens);
  }
  meta.num_seqs = static_cast<int>(num_seqs);
  meta.num_tokens = num_tokens;
  inputs.ids = arena.allocate({num_tokens}, DType::kI32);
  meta.query_start = arena.allocate({num_seqs + 1}, DType::kI32);
  meta.seq_lens = arena.allocate({num_seqs}, DType::kI32);
  meta.positions = arena.allocate({num_tokens}, DType::kI32);
  meta.slot_mapping = arena.allocate({num_tokens}, DType::kI64);
  const Tensor logit_row_ids = arena.allocate({num_tokens}, DType::kI32);
  inputs.draws = arena.allocate({num_seqs * static_cast<int64_t>(sizeof(ops::TokenDraw))}, DType::kU8);
  meta.block_table = arena.allocate({num_seqs, max_blocks}, DType::kI32);

  int64_t row = 0;
  for (int64_t s = 0; s < own_seqs; ++s) {
    const ScheduledRequest& part = step.scheduled[static_cast<size_t>(s)];
    RequestState& request = scheduled(step, part.id);
    const int64_t length = part.num_computed_tokens + part.num_tokens;
    CHECK_LE(length, static_cast<int64_t>(request.token_ids.size()));
    const int64_t blocks = (length + block_size_ - 1) / block_size_;
    CHECK_LE(blocks, static_cast<int64_t>(request.block_ids.size()));
    meta.query_start.data_as<int32_t>()[s] = static_cast<int32_t>(row);
    meta.seq_lens.data_as<int32_t>()[s] = static_cast<int32_t>(length);
    int32_t* table = meta.block_table.row<int32_t>(s);
    std::memcpy(table, request.block_ids.data(), static_cast<size_t>(blocks) * sizeof(int32_t));
    std::fill(table + blocks, table + max_blocks, 0);
    fill_sequence(request, part, row, inputs);
    add_logit_rows(request, part, row, inputs);
    row += part.num_tokens;
  }
  meta.query_start.data_as<int32_t>()[own_seqs] = static_cast<int32_t>(row);
  const int64_t wanted = padded_rows > 0 ? padded_rows : static_cast<int64_t>(inputs.logit_rows.size());
  inputs.logit_row_ids = logit_row_ids.slice(0, 0, wanted);
  for (size_t i = 0; i < inputs.logit_rows.size(); ++i) {
    inputs.logit_row_ids.data_as<int32_t>()[i] = static_cast<int32_t>(inputs.logit_rows[i].row);
  }
  if (padded_rows > 0) {
    meta.max_query_len = 1;
    pad(own_seqs, padded_rows, inputs);
  }
  return inputs;
}

void InputBatch::pad(int64_t own, int64_t padded_rows, StepInputs& inputs) {
  for (int64_t i = own; i < padded_rows; ++i) {
    inputs.ids.data_as<int32_t>()[i] = 0;
    inputs.meta.positions.data_as<int32_t>()[i] = 0;
    inputs.meta.slot_mapping.data_as<int64_t>()[i] = -1;
    inputs.meta.query_start.data_as<int32_t>()[i + 1] = static_cast<int32_t>(own);
    inputs.meta.seq_lens.data_as<int32_t>()[i] = 0;
    inputs.logit_row_ids.data_as<int32_t>()[i] = static_cast<int32_t>(i);
  }
}

void InputBatch::fill_sequence(const RequestState& request, const ScheduledRequest& part, int64_t row, StepInputs& inputs) const {
  for (int64_t i = 0; i < part.num_tokens; ++i) {
    const int64_t position = part.num_computed_tokens + i;
    inputs.ids.data_as<int32_t>()[row + i] = request.token_ids[static_cast<size_t>(position)];
    inputs.meta.positions.data_as<int32_t>()[row + i] = static_cast<int32_t>(position);
    const int64_t block = request.block_ids[static_cast<size_t>(position / block_size_)];
    inputs.meta.slot_mapping.data_as<int64_t>()[row + i] = block * block_size_ + position % block_size_;
  }
}

void InputBatch::add_logit_rows(RequestState& request, const ScheduledRequest& part, int64_t row, StepInputs& inputs) const {
  const bool wants_prompt = request.sampling.prompt_logprobs != -1;
  for (int64_t i = 0; i < part.num_tokens; ++i) {
    LogitRow wanted{&request, row + i, part.samples && i + 1 == part.num_tokens, -1};
    const int64_t next = part.num_computed_tokens + i + 1;
    if (wants_prompt && next < request.num_prompt_tokens) wanted.prompt_target = request.token_ids[static_cast<size_t>(next)];
    if (wanted.samples || wanted.prompt_target >= 0) inputs.logit_rows.push_back(wanted);
  }
}

}  // namespace tutti

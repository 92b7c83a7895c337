// What a request's parameters change in its logits before a token is chosen: its grammar, allowed ids, bad words, the minimum
// length, biases, then the penalties. Works on any part of the vocabulary, so that every tensor-parallel rank treats
// its own. Pure functions, any thread.
#pragma once

#include <span>

#include "nn/parameter.h"
#include "runtime/input_batch.h"

namespace tutti {

// Whether process_logits() would change anything.
bool changes_logits(const RequestState& request);

// logits[i] belongs to token vocab.begin + i. `eos_token_ids` are held back, with the request's own stop tokens, until
// min_tokens are out. A request with a grammar has its mask; these tokens then end the text, where it may end.
void process_logits(std::span<float> logits, Range vocab, const RequestState& request, std::span<const int32_t> eos_token_ids);

}  // namespace tutti

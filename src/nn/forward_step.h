// What the layers of a rank share during one step. Worker thread only.
#pragma once

#include <span>

#include "ops/attention.h"
#include "ops/context.h"

namespace tutti {

struct ForwardStep {
  const Context& ctx;
  const AttentionMetadata& meta;
  std::span<const KVLayer> kv;  // of this rank's layers, in order
};

class OutputProjection;

// What a block hands to the residual stream: its last product, still to be done, so that the stream can take it in place.
struct BlockOutput {
  const OutputProjection& projection;
  Tensor input;  // [num_tokens, this rank's part of in_features], from the arena
};

// Scratch of a layer: what it took from the arena is free again at its end.
class ArenaScope {
 public:
  explicit ArenaScope(const Context& ctx) : arena_(*ctx.arena), mark_(arena_.mark()) {}
  ~ArenaScope() { arena_.rewind(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  size_t mark_;
};

}  // namespace tutti

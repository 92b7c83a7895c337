// Fills the parameters of one rank: from the mapped files, of which only this rank's slices are read, or with made-up
// values. Worker thread, once, at load.
#pragma once

#include <functional>

#include "nn/parameter.h"
#include "ops/context.h"
#include "runtime/model_source.h"

namespace tutti {

// Bytes of this rank's parameters that are in place, and of all of them. Called after each.
using LoadProgress = std::function<void(int64_t done, int64_t total)>;

// As kept in memory, before packing adds its padding.
int64_t parameter_bytes(const ModelSource& source, const ParameterList& parameters);

// Throws IoError naming the tensor, the shape expected and the one found.
void load_weights(const ModelSource& source, const Context& ctx, const ParameterList& parameters, const LoadProgress& progress);

}  // namespace tutti

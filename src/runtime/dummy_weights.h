// Made-up weights: every element is a function of the parameter's name and the element's index in the whole matrix, so
// that every way of cutting a model gives the same model. Any thread.
#pragma once

#include "base/thread_pool.h"
#include "nn/parameter.h"

namespace tutti {

// This rank's part, F32 [local_rows, local_columns] or [length]. Matrices have a standard deviation of
// 1 / sqrt(columns), norm weights lie around 1, biases around 0.
Tensor dummy_values(const Parameter& parameter, ThreadPool& pool);

}  // namespace tutti

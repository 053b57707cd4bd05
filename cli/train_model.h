// cli/train_model.h -- the model that a training asks for, and whether there is memory for it.
#pragma once

#include <cstdint>
#include <memory>

#include <remat/budget.h>

#include "cli/settings.h"

namespace remat::zoo {
class Model;
}

namespace remat::cli {

/// Throws Error for a model that cannot be.
std::shared_ptr<zoo::Model> make_model(const ModelSettings& settings);

/// Trainable scalars of that model, which is not built for it.
int64_t parameter_count(const ModelSettings& settings);

/// Throws Error where parameters, gradients and the state of AdamW alone take more than `machine_bytes`, BudgetError
/// where parameters and gradients do not fit a `budget` in bytes: before hours of building a model, or the machine's
/// last byte. Activations come on top, and are for the steps to find out. `shards`: of so many equal parts of all that
/// one is held here.
void check_model_fits(const ModelSettings& settings, const Budget& budget, int64_t machine_bytes, int64_t shards = 1);

}  // namespace remat::cli

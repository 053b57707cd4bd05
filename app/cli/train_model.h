// cli/train_model.h -- the model that a training asks for, and whether there is memory for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <remat/budget.h>

#include "cli/settings.h"
#include "data/labels.h"

namespace remat::zoo {
class Model;
}

namespace remat::cli {

// `labels`: those that the model tells apart; empty: it predicts tokens.

/// New, or with the weights of its directory; with LoRA's factors where `settings` ask for them. Throws Error for a
/// model that cannot be.
std::shared_ptr<zoo::Model> make_model(const ModelSettings& settings, const data::Labels& labels = {});

/// Scalars of that model without factors, which is not built for it.
int64_t parameter_count(const ModelSettings& settings, const data::Labels& labels = {});

/// Throws Error unless the results of a training that names a directory, its model and LoRA's factors, could be saved
/// where `settings` say: called before the work, not after. Creates nothing.
void check_model_paths(const TrainSettings& settings);

/// Throws UsageError where `path`, which `option` names for a result, is a file of the model's directory, or one that
/// the directory of the trained model gets.
void check_no_model_file(const TrainSettings& settings, const std::string& path, const std::string& option);

/// Writes `model`, which make_model() made of a directory and training has changed, to another: all of it, with LoRA's
/// factors merged into its weights.
void save_model(const ModelSettings& settings, const data::Labels& labels, const zoo::Model& model,
                const std::string& to);
/// The same of what LoRA has trained alone.
void save_adapter(const ModelSettings& settings, const data::Labels& labels, const zoo::Model& model,
                  const std::string& to);

/// What the BudgetError of check_model_fits() advises: it does not know which budget would do.
inline constexpr std::string_view kLargerBudget = "give a larger one";

/// Throws Error where parameters, gradients and the state of AdamW alone take more than `machine_bytes`, BudgetError
/// where parameters and gradients do not fit a `budget` in bytes (with LoRA both of the frozen weights alone, and
/// without what `settings` free at once or put into a file): before hours of building a model, or the machine's last
/// byte. Activations come on top, and are for the steps to find out. `shards`: of so many equal parts of all that one
/// is held here.
void check_model_fits(const TrainSettings& settings, const Budget& budget, int64_t machine_bytes, int64_t shards = 1,
                      const data::Labels& labels = {});

}  // namespace remat::cli

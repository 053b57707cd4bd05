// cli/read_training_data.h -- what a training learns from, of the kind that was asked for.
#pragma once

#include <memory>

#include "cli/settings.h"
#include "cli/training_data.h"

namespace remat::cli {

/// `settings.data`: a text in bytes or in tokens of the directory's tokenizer, labelled texts, or the training pictures
/// of a directory. Throws Error for files that cannot be read or have too little in them, where the tokenizer cannot be
/// read or does not belong to the model, where the model knows no positions as far as `seq`, or has a classifier for
/// another number of classes.
std::unique_ptr<TrainingData> read_training_data(const TrainSettings& settings);

/// `settings.held_out`, a file of the same kind, or the test pictures of a directory. `labels`: the training's; Error
/// is thrown for others too.
std::unique_ptr<TrainingData> read_held_out_data(const TrainSettings& settings, const data::Labels& labels);

}  // namespace remat::cli

#include "cli/training_task.h"

namespace remat::cli {

std::unique_ptr<Trainer> make_trainer(const TrainingTask& task, const std::optional<RankPlace>& place) {
  auto trainer = std::make_unique<Trainer>(task.settings, task.data, task.budget, place, task.held_out);
  if (task.fingerprints) trainer->record_fingerprints();
  if (task.checkpoint != nullptr) trainer->load(payload_of(*task.checkpoint));
  return trainer;
}

}  // namespace remat::cli

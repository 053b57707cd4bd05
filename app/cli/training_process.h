// cli/training_process.h -- a training in a process of its own, which takes a step when it is asked to: trainings that
// take steps in turn see the same machine, and share no allocator.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include <sys/types.h>

#include "cli/trainer.h"
#include "cli/training.h"

namespace remat::cli {

class TrainingProcess {
 public:
  /// Starts the process, as fork_child() does, which builds the model there. `name` is its own in messages: "the plain
  /// training". Throws Error where the system refuses.
  TrainingProcess(std::string name, const TrainingTask& task);
  /// Ends the process, also in the middle of a step.
  ~TrainingProcess();
  TrainingProcess(const TrainingProcess&) = delete;
  TrainingProcess& operator=(const TrainingProcess&) = delete;

  /// Waits until the model is there, for the first time. Throws what the trainer throws, in this process.
  ParameterCount parameter_count();
  /// Trains on the next batch there. Throws what the step throws there; Error where the process has come to an end.
  StepResult step();
  /// Tensor bytes alive there when the last step had ended.
  int64_t current_bytes() const { return current_bytes_; }

 private:
  std::string receive();
  [[noreturn]] void fail_as_process_ended();

  std::string name_;
  pid_t process_ = -1;
  std::FILE* answers_ = nullptr;  ///< a socket, which is also written to
  std::optional<ParameterCount> parameter_count_;
  int64_t current_bytes_ = 0;
};

}  // namespace remat::cli

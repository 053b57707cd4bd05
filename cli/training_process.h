// cli/training_process.h -- a training in a process of its own, which takes a step when asked to: trainings that take
// steps in turn see the same machine, and share no allocator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <sys/types.h>

#include "cli/trainer.h"

namespace remat::cli {

class TrainingProcess {
 public:
  /// Starts the process, a copy of this one, which builds the model there. `what` names it in messages: "the plain
  /// training". `data` is read there too. `place`: the process is one of several that train together. To be made while
  /// this process has one thread, and has computed nothing with torch. Throws Error where the system refuses.
  TrainingProcess(std::string what, const TrainSettings& settings, const TrainingData& data,
                  std::optional<Budget> budget, const std::optional<RankPlace>& place = std::nullopt,
                  bool fingerprints = true);
  /// Ends the process, also in the middle of a step.
  ~TrainingProcess();
  TrainingProcess(const TrainingProcess&) = delete;
  TrainingProcess& operator=(const TrainingProcess&) = delete;

  /// Waits until the model is there, for the first time. Throws what the trainer throws, in this process.
  ParameterCount parameter_count();
  /// Trains on the next batch there. Throws what the step throws there; Error where the process has come to an end.
  StepResult step();
  /// The same in two parts: the first does not wait.
  void begin_step();
  StepResult end_step();

  /// Tensor bytes alive there when the last step had ended.
  int64_t current_bytes() const { return current_bytes_; }

 private:
  std::string read_answer();
  [[noreturn]] void fail_as_process_ended();
  void end();

  std::string what_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string unread_;  ///< what has arrived since the last whole line
  std::optional<ParameterCount> parameter_count_;
  int64_t current_bytes_ = 0;
};

}  // namespace remat::cli

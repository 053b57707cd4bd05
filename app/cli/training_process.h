// cli/training_process.h -- a training in a process of its own, which does what it is asked to: trainings that take
// steps in turn see the same machine, and share no allocator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <sys/types.h>

#include "cli/training.h"
#include "cli/training_task.h"

namespace remat::cli {

class TrainingProcess {
 public:
  /// Starts the process, a copy of this one, which builds the model there, and reads the data. `name` is its own in
  /// messages: "the plain training". `place`: the process is one of several that train together. To be made while this
  /// process has one thread, and has computed nothing with torch. Throws Error where the system refuses.
  TrainingProcess(std::string name, const TrainingTask& task, const std::optional<RankPlace>& place = std::nullopt);
  /// Ends the process, also in the middle of a step.
  ~TrainingProcess();
  TrainingProcess(const TrainingProcess&) = delete;
  TrainingProcess& operator=(const TrainingProcess&) = delete;

  /// Waits until the model is there, for the first time. Throws what the trainer throws, in this process.
  ParameterCount parameter_count();
  /// Trains on the next batch there. Throws what the step throws there; Error where the process has come to an end.
  StepResult step();
  /// Any order (cli/training_order.h) in two parts, of which the first does not wait. Throw the same.
  void begin(const std::string& order);
  std::string end();
  StepResult end_step();
  /// A file descriptor that can be read as soon as there is an answer, or the process has ended.
  int answers() const { return socket_; }
  /// Its evaluation ends early.
  void pass_on_signal() const;

  /// Tensor bytes alive there when the last step had ended.
  int64_t current_bytes() const { return current_bytes_; }

 private:
  [[noreturn]] void fail_as_process_ended();

  std::string name_;
  pid_t process_ = -1;
  int socket_ = -1;
  std::string unread_;  ///< what has arrived since the last whole line
  std::optional<ParameterCount> parameter_count_;
  int64_t current_bytes_ = 0;
};

}  // namespace remat::cli

// remat/export.h -- a training step as C for microcontrollers.
//
// A step (format remat-step, docs/formats.md; python/remat/export makes one of a PyTorch model) is planned within a
// number of bytes and written as static C99: calls of kernels at fixed addresses in one arena. docs/export.md says what
// that C does. No torch here; nothing is written to disk. Functions may be called by several threads at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace remat {

/// What is to be exported, and within what.
struct ExportOptions {
  int64_t ram_bytes = 0;          ///< of the board, or of the part that the model may take; everything counted
  int64_t stack_bytes = 1024;     ///< of it, kept for the stack
  std::string optimizer = "sgd";  ///< "sgd", "momentum" or "adam"
  double momentum = 0.9;          ///< of "momentum"
  double beta1 = 0.9;             ///< of "adam": of the gradient's mean
  double beta2 = 0.999;           ///< of "adam": of its square's mean
  double epsilon = 1e-8;          ///< of "adam": added to the root that is divided by
  double weight_decay = 0;        ///< of all: added to the gradient, as torch.optim.SGD and Adam do
  std::string name = "model";     ///< of files, and what names in C begin with: another one for each model of a program
  std::string planner = "auto";   ///< who decides what is recomputed; list_planners() has their names
};

/// The C of a step, and what it takes.
struct ExportedStep {
  std::map<std::string, std::string> files;  ///< contents by name, relative to the folder that they belong in

  // In bytes; all but constants are in RAM.

  int64_t ram_bytes = 0;        ///< the whole, without the stack: the six below
  int64_t parameter_bytes = 0;  ///< trained parameters
  int64_t optimizer_bytes = 0;  ///< the optimizer's state of them
  int64_t state_bytes = 0;      ///< running statistics
  int64_t batch_bytes = 0;      ///< inputs and targets
  int64_t fixed_bytes = 0;      ///< the loss, the learning rate, the number of the step
  int64_t arena_bytes = 0;      ///< all that is made in a step
  int64_t constant_bytes = 0;   ///< frozen parameters, in flash
  int64_t predicted_bytes = 0;  ///< what the planner said that ram_bytes would be
  int64_t kept_bytes = 0;       ///< what it would be if nothing were recomputed

  // Of one step, predicted for a Cortex-M4F by a table (src/export/costs.cpp).

  double instructions = 0;         ///< replays included
  double replay_instructions = 0;  ///< of them
  int64_t calls = 0;               ///< of kernels
  int64_t replays = 0;             ///< of them, those that run again

  /// "256 KiB of RAM: ..." for people, several lines.
  std::string summary() const;
};

/// Reads a step and exports it. Throws Error where the step is not sound, and BudgetError where it does not fit
/// options.ram_bytes: its message says what takes the memory and the smallest RAM that would do.
ExportedStep export_step(std::string_view step_json, const ExportOptions& options);

}  // namespace remat

// cli/progress.h -- how far a run has come: a bar that redraws itself on a terminal, a line for each step elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace remat::cli {

struct ProgressState {
  std::string label;  ///< "train", "plain", "both"
  int64_t step = 0;
  int64_t steps = 0;
  float loss = 0;
  std::string item_name = "tokens";  ///< what a step trains on
  double items_per_second = 0;
  std::optional<double> times_plain{};  ///< a step's time, of plain's: shown in place of the speed
  int64_t current_bytes = 0;
  int64_t peak_bytes = 0;                 ///< of the steps in which the budget held; of all where there is none
  std::optional<int64_t> budget_bytes{};  ///< of the last step
  double seconds_left = 0;
};

/// One line of at most `width` columns: what matters least is left out first. `color` adds escape codes, which take no
/// columns. No newline.
std::string progress_bar(const ProgressState& state, int width, bool color);

/// The whole state as one line without newline.
std::string progress_line(const ProgressState& state);

/// Columns of the terminal that `out` is; of the variable COLUMNS, or 80, where it is none.
int terminal_width(std::FILE* out);

class Progress {
 public:
  explicit Progress(std::FILE* out);
  /// Leaves the last bar standing and moves to a new line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const ProgressState& state);
  /// Ends the bar, so that something else can be printed.
  void finish();

 private:
  std::FILE* out_;
  bool terminal_;
  bool color_;
  bool drawn_ = false;
};

}  // namespace remat::cli

#include "cli/rank_processes.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include <remat/error.h>

#include "cli/training_order.h"

namespace remat::cli {
namespace {

std::string new_folder() {
  std::string path = (std::filesystem::temp_directory_path() / "remat-XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr) {
    throw Error("[ranks] cannot make the folder '" + path + "' (" + std::strerror(errno) +
                "); set TMPDIR to another place");
  }
  return path;
}

/// Is it only told of what another process met?
bool is_of_another(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return std::string_view(known.what()).starts_with("[ranks]");
  }
}

/// What `call` gives for each process; of what some throw, what tells most.
template <class F>
auto of_each(std::vector<std::unique_ptr<TrainingProcess>>& processes, const F& call) {
  std::vector<decltype(call(*processes[0]))> results;
  std::exception_ptr error;
  for (auto& process : processes) {
    try {
      results.push_back(call(*process));
    } catch (...) {
      if (!error || is_of_another(error)) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  return results;
}

/// All processes do what `order` says at the same time; `answer` reads what each gives.
template <class F>
auto together(std::vector<std::unique_ptr<TrainingProcess>>& processes, const std::string& order, const F& answer) {
  for (auto& process : processes) process->begin(order);
  return of_each(processes, answer);
}

}  // namespace

RankProcesses::RankProcesses(const TrainingTask& task) : folder_(new_folder()) {
  const int ranks = static_cast<int>(task.settings.ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const RankPlace place{.rank = rank, .size = ranks, .file = folder_ + "/ranks"};
    const std::string name = "rank " + std::to_string(rank);
    processes_.push_back(std::make_unique<TrainingProcess>(name, task, place));
  }
  parameter_count_ = of_each(processes_, [](TrainingProcess& process) { return process.parameter_count(); })[0];
  if (task.checkpoint != nullptr) steps_done_ = task.checkpoint->about().at("step");
}

RankProcesses::~RankProcesses() {
  processes_.clear();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

StepResult RankProcesses::step() {
  auto results = together(processes_, step_order(), [](TrainingProcess& process) { return process.end_step(); });
  std::vector<int64_t> peaks;
  double seconds = 0;
  for (const StepResult& result : results) {
    peaks.push_back(result.peak_bytes);
    seconds = std::max(seconds, result.seconds);
  }
  const auto highest = std::max_element(peaks.begin(), peaks.end()) - peaks.begin();
  StepResult joined = std::move(results[static_cast<size_t>(highest)]);
  joined.seconds = seconds;
  joined.rank_peak_bytes = std::move(peaks);
  ++steps_done_;
  return joined;
}

std::vector<std::string> RankProcesses::answers(const std::string& order) {
  return together(processes_, order, [](TrainingProcess& process) { return process.end(); });
}

std::optional<Evaluation> RankProcesses::evaluate() { return read_evaluation(answers(evaluation_order())[0]); }

void RankProcesses::write(Output output, const std::string& path, const nlohmann::json& about) {
  answers(write_order(output, path, about));
}

int64_t RankProcesses::current_bytes() const {
  int64_t bytes = 0;
  for (const auto& process : processes_) bytes += process->current_bytes();
  return bytes;
}

}  // namespace remat::cli

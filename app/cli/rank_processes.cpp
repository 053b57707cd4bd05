#include "cli/rank_processes.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <remat/error.h>

#include "cli/interrupt.h"
#include "cli/lost_connection.h"
#include "cli/training_order.h"

namespace remat::cli {
namespace {

constexpr int kLook = 200;      // milliseconds between looks at signals
constexpr int kGrace = 10'000;  // milliseconds that others get to answer when one has ended

/// Is it only told of what another process met?
bool is_of_another(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return std::string_view(known.what()).starts_with("[ranks]") || is_lost_connection(known);
  }
}

}  // namespace

MeetingPlace::MeetingPlace() : file_(memfd_create("remat-ranks", MFD_CLOEXEC)) {
  if (file_ >= 0) return;
  throw Error("[ranks] the processes have no place to meet (" + std::string(std::strerror(errno)) +
              "); close some files or programs");
}
MeetingPlace::~MeetingPlace() { close(file_); }
std::string MeetingPlace::path() const { return "/proc/self/fd/" + std::to_string(file_); }

RankProcesses::RankProcesses(const TrainingTask& task) {
  const int ranks = static_cast<int>(task.settings.ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const RankPlace place{.rank = rank, .size = ranks, .file = meeting_place_.path()};
    const std::string name = "rank " + std::to_string(rank);
    processes_.push_back(std::make_unique<TrainingProcess>(name, task, place));
  }
  parameter_count_ = of_each({}, [](TrainingProcess& process) { return process.parameter_count(); })[0];
  if (task.checkpoint != nullptr) steps_done_ = task.checkpoint->about().at("step");
}

/// What `call` gives for each process, which was given `order`; of what some throw, what tells most. One that has ended
/// can keep the others waiting for it: they get some time.
template <class F>
RankProcesses::Answers<F> RankProcesses::of_each(const std::string& order, const F& call) {
  Answers<F> answers(processes_.size());
  std::vector<pollfd> waiting;
  for (const auto& process : processes_) waiting.push_back({.fd = process->answers(), .events = POLLIN, .revents = 0});
  std::exception_ptr error;
  bool told = false;
  int left = kGrace;
  for (size_t missing = processes_.size(); missing > 0;) {
    const int ready = poll(waiting.data(), waiting.size(), kLook);
    if (interrupted() != 0 && !std::exchange(told, true)) {
      for (const auto& process : processes_) process->pass_on_signal();
    }
    if (ready <= 0) {
      if (ended_ && (left -= kLook) <= 0) break;
      continue;
    }
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].fd < 0 || waiting[i].revents == 0) continue;
      waiting[i].fd = -1;
      --missing;
      try {
        answers[i] = call(*processes_[i]);
      } catch (...) {
        ended_ = ended_ || order.empty() || !goes_on_after(order, std::current_exception());
        if (!error || is_of_another(error)) error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
  return answers;
}

template <class F>
RankProcesses::Answers<F> RankProcesses::together(const std::string& order, const F& answer) {
  try {
    for (auto& process : processes_) process->begin(order);
  } catch (...) {
    ended_ = true;
    throw;
  }
  return of_each(order, answer);
}

StepResult RankProcesses::step() {
  auto results = together(step_order(), [](TrainingProcess& process) { return process.end_step(); });
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

std::optional<Evaluation> RankProcesses::evaluate() {
  return read_evaluation(together(evaluation_order(), [](TrainingProcess& process) { return process.end(); })[0]);
}

void RankProcesses::write(Output output, const std::string& path, const nlohmann::json& about) {
  together(write_order(output, path, about), [](TrainingProcess& process) { return process.end(); });
}

int64_t RankProcesses::current_bytes() const {
  int64_t bytes = 0;
  for (const auto& process : processes_) bytes = std::max(bytes, process->current_bytes());
  return bytes;
}

}  // namespace remat::cli

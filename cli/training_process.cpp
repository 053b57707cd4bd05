#include "cli/training_process.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <remat/error.h>
#include <remat/memory.h>

#include "cli/step_message.h"

namespace remat::cli {
namespace {

constexpr char kStep = 's';

bool send_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const auto sent = send(file, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    done += static_cast<size_t>(sent);
  }
  return true;
}

bool receive_order(int file) {
  char order = 0;
  ssize_t count = 0;
  do count = read(file, &order, 1);
  while (count < 0 && errno == EINTR);
  return count == 1 && order == kStep;
}

// The process's life: one answer when the trainer is there, and one for each order. It ends with the orders, or with
// an error, which is its last answer.
void serve(int orders_and_answers, const TrainSettings& settings, const TrainingData& data,
           std::optional<Budget> budget, const std::optional<RankPlace>& place, bool fingerprints) {
  const auto answer = [&](const std::string& line) { return send_all(orders_and_answers, line + "\n"); };
  try {
    Trainer trainer(settings, data, std::move(budget), place);
    if (fingerprints) trainer.record_fingerprints();
    const auto count = trainer.parameter_count();
    bool heard = answer(nlohmann::json{{"parameters", count.all}, {"trained", count.trained}}.dump());
    while (heard && receive_order(orders_and_answers)) {
      const auto result = trainer.step();
      heard = answer(nlohmann::json{{"current_bytes", memory::current()}}.dump()) && answer(step_message(result));
    }
  } catch (...) {
    answer(error_message(std::current_exception()));
  }
}

// Ctrl-C at a terminal reaches all processes: the one that was started decides what becomes of the others, which end
// with it, however it ends.
void become_dependent(pid_t parent) {
  for (const int signal : {SIGINT, SIGHUP, SIGTERM}) std::signal(signal, signal == SIGTERM ? SIG_DFL : SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it ended before it could be followed
}

}  // namespace

TrainingProcess::TrainingProcess(std::string what, const TrainSettings& settings, const TrainingData& data,
                                 std::optional<Budget> budget, const std::optional<RankPlace>& place, bool fingerprints)
    : what_(std::move(what)) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error("[process] no connection to another process (" + std::string(std::strerror(errno)) +
                "); close some files or programs");
  }
  std::fflush(nullptr);  // what was printed is not to be printed twice
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0) {
    become_dependent(parent);
    close(ends[0]);
    serve(ends[1], settings, data, std::move(budget), place, fingerprints);
    _exit(0);
  }
  close(ends[1]);
  socket_ = ends[0];
  if (process_ < 0) {
    const std::string reason = std::strerror(errno);
    close(socket_);
    throw Error("[process] no other process can be started (" + reason + "); close some programs");
  }
}

TrainingProcess::~TrainingProcess() { end(); }

void TrainingProcess::end() {
  close(socket_);
  kill(process_, SIGKILL);  // nothing there is worth waiting for
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
}

ParameterCount TrainingProcess::parameter_count() {
  if (!parameter_count_) {
    const auto counts = nlohmann::json::parse(read_answer());
    parameter_count_ = {.all = counts.at("parameters"), .trained = counts.at("trained")};
  }
  return *parameter_count_;
}

StepResult TrainingProcess::step() {
  begin_step();
  return end_step();
}

void TrainingProcess::begin_step() {
  parameter_count();
  if (!send_all(socket_, std::string(1, kStep))) fail_as_process_ended();
}

StepResult TrainingProcess::end_step() {
  current_bytes_ = nlohmann::json::parse(read_answer()).at("current_bytes");
  return read_step_message(read_answer());
}

std::string TrainingProcess::read_answer() {
  size_t end = 0;
  char piece[1 << 16];
  while ((end = unread_.find('\n')) == std::string::npos) {
    const auto count = read(socket_, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail_as_process_ended();
    unread_.append(piece, static_cast<size_t>(count));
  }
  auto line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  throw_if_error(line);
  return line;
}

void TrainingProcess::fail_as_process_ended() {
  siginfo_t info = {};
  waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOWAIT);
  const bool killed = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  const auto how = killed ? "was ended by signal " + std::to_string(info.si_status)
                          : "ended with code " + std::to_string(info.si_status);
  const bool memory = killed && info.si_status == SIGKILL;
  throw Error("[process] the process of " + what_ + " " + how +
              (memory ? ", as the system does where memory runs out; lower --batch: all processes are in memory at once"
                      : "; run `remat train` with the same options, on one process, to see why"));
}

}  // namespace remat::cli

#include "cli/training_process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include <remat/error.h>
#include <remat/memory.h>

#include "cli/interrupt.h"
#include "cli/step_message.h"
#include "cli/training_order.h"

namespace remat::cli {
namespace {

bool send_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const auto sent = send(file, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    done += static_cast<size_t>(sent);
  }
  return true;
}

/// Appends to `text`, of which `line` is what comes before the first newline, as soon as there is one. False at the
/// end.
bool receive_line(int file, std::string& text, std::string& line) {
  size_t end = 0;
  char piece[1 << 16];
  while ((end = text.find('\n')) == std::string::npos) {
    const auto count = read(file, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.append(piece, static_cast<size_t>(count));
  }
  line = text.substr(0, end);
  text.erase(0, end + 1);
  return true;
}

/// Processes of one machine that train together share its memory, and its cores: their threads would wait for each
/// other's. OMP_NUM_THREADS decides where the user has set it.
void share_machine(const RankPlace& place) {
  if (std::getenv("OMP_NUM_THREADS") == nullptr) at::set_num_threads(std::max(1, at::get_num_threads() / place.size));
  memory::set_limit(memory::limit() / place.size);
}

// The process's life: one answer when the trainer is there, and one for each order. It ends with the orders, or with
// an error that leaves the training in the middle of something.
void serve(int orders_and_answers, const TrainingTask& task, const std::optional<RankPlace>& place) {
  const auto answer = [&](const std::string& lines) { return send_all(orders_and_answers, lines + "\n"); };
  std::string unread, order;
  try {
    if (place) share_machine(*place);
    const auto trainer = make_trainer(task, place);
    const auto count = trainer->parameter_count();
    bool heard = answer(nlohmann::json{{"parameters", count.all}, {"trained", count.trained}}.dump());
    while (heard && receive_line(orders_and_answers, unread, order)) {
      try {
        heard = answer(carry_out(order, *trainer));
      } catch (...) {
        if (!goes_on_after(order, std::current_exception())) throw;
        heard = answer(error_message(std::current_exception()));
      }
    }
  } catch (...) {
    answer(error_message(std::current_exception()));
  }
}

// Ctrl-C at a terminal, and `timeout`, reach all processes: the one that was started decides what becomes of the
// others, which end with it, however it ends.
void become_dependent(pid_t parent) {
  leave_signals_to_parent();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it ended before it could be followed
}

}  // namespace

TrainingProcess::TrainingProcess(std::string name, const TrainingTask& task, const std::optional<RankPlace>& place)
    : name_(std::move(name)) {
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
    serve(ends[1], task, place);
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

TrainingProcess::~TrainingProcess() {
  close(socket_);
  kill(process_, SIGKILL);  // nothing there is worth waiting for
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
}

ParameterCount TrainingProcess::parameter_count() {
  if (!parameter_count_) {
    const auto counts = nlohmann::json::parse(end());
    parameter_count_ = {.all = counts.at("parameters"), .trained = counts.at("trained")};
  }
  return *parameter_count_;
}

StepResult TrainingProcess::step() {
  begin(step_order());
  return end_step();
}

void TrainingProcess::begin(const std::string& order) {
  parameter_count();
  if (!send_all(socket_, order + "\n")) fail_as_process_ended();
}

StepResult TrainingProcess::end_step() {
  current_bytes_ = nlohmann::json::parse(end()).at("current_bytes");
  return read_step_message(end());
}

void TrainingProcess::pass_on_signal() const { kill(process_, SIGUSR1); }

std::string TrainingProcess::end() {
  std::string line;
  if (!receive_line(socket_, unread_, line)) fail_as_process_ended();
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
  throw Error("[process] the process of " + name_ + " " + how +
              (memory ? ", as the system does where memory runs out; lower --batch: all processes are in memory at once"
                      : "; run `remat train` with the same options, on one process, to see why"));
}

}  // namespace remat::cli

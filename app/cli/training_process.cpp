#include "cli/training_process.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <remat/error.h>

#include "cli/child_process.h"
#include "cli/step_message.h"

namespace remat::cli {
namespace {

// The process's life: one answer when the trainer is there, and two for each byte, which asks for a step: what is alive
// after it, and what it gave. It ends with the bytes, or with an error.
void serve(int socket, const TrainingTask& task) {
  std::FILE* const answers = fdopen(socket, "w");
  const auto answer = [&](const std::string& line) {
    std::fprintf(answers, "%s\n", line.c_str());
    std::fflush(answers);
  };
  char asked = 0;
  try {
    Trainer trainer(task);
    const auto count = trainer.parameter_count();
    answer(nlohmann::json{{"parameters", count.all}, {"trained", count.trained}}.dump());
    while (read(socket, &asked, 1) == 1) {
      const StepResult result = trainer.step();
      answer(nlohmann::json{{"current_bytes", trainer.current_bytes()}}.dump());
      answer(step_message(result));
    }
  } catch (...) {
    answer(error_message(std::current_exception()));
  }
}

}  // namespace

TrainingProcess::TrainingProcess(std::string name, const TrainingTask& task) : name_(std::move(name)) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error("[process] no connection to another process (" + std::string(std::strerror(errno)) +
                "); close some files or programs");
  }
  process_ = fork_child();
  if (process_ == 0) {
    close(ends[0]);
    serve(ends[1], task);
    _exit(0);
  }
  close(ends[1]);
  answers_ = fdopen(ends[0], "r");
}

TrainingProcess::~TrainingProcess() {
  std::fclose(answers_);
  if (process_ < 0) return;
  kill(process_, SIGKILL);  // nothing there is worth waiting for
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) continue;
}

ParameterCount TrainingProcess::parameter_count() {
  if (!parameter_count_) {
    const auto counts = nlohmann::json::parse(receive());
    parameter_count_ = {.all = counts.at("parameters"), .trained = counts.at("trained")};
  }
  return *parameter_count_;
}

StepResult TrainingProcess::step() {
  parameter_count();
  if (send(fileno(answers_), "s", 1, MSG_NOSIGNAL) != 1) fail_as_process_ended();
  current_bytes_ = nlohmann::json::parse(receive()).at("current_bytes");
  return read_step_message(receive());
}

std::string TrainingProcess::receive() {
  std::string line;
  for (int c = 0; (c = std::fgetc(answers_)) != '\n';) {
    if (c == EOF) fail_as_process_ended();
    line.push_back(static_cast<char>(c));
  }
  throw_if_error(line);
  return line;
}

void TrainingProcess::fail_as_process_ended() {
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) continue;
  process_ = -1;
  throw Error(how_it_ended(name_, status));
}

}  // namespace remat::cli

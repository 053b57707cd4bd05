// tests/cli/run_command.h -- runs the remat binary as a shell would, and says what came of it.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace remat::test {

struct Outcome {
  int code = -1;  ///< exit code, or 1000 + signal where one ended it
  std::string out;
  std::string err;
};

struct Setting {
  std::string directory = ".";
  std::vector<std::pair<std::string, std::string>> environment = {};
  int64_t largest_file = 0;       ///< bytes, 0: no limit; stands in for a full disk
  std::string signal_after = {};  ///< send `signal` once this has appeared on standard output
  int signal = 0;
  bool to_group = false;                     ///< twice, to the command and to its process group, as `timeout` sends it
  std::function<void()> before_signal = {};  ///< run first, while the command goes on
  bool reader_stops = false;  ///< nothing is read from `signal_after` on; the signal comes once the pipe is full, and
                              ///< the command is killed another 20 s later
  int signal_seconds = 0;     ///< > 0: send it this long after the start, and kill the command another 20 s later
  int columns = 0;            ///< > 0: standard output is a terminal of this width
};

// Reads until the other end closes; `seen` is called with all that has arrived so far.
inline std::string drain(int file, const std::function<void(const std::string&)>& seen = {}) {
  std::string text;
  char buffer[4096];
  while (true) {
    const auto count = read(file, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;  // a terminal whose other end closed reports an error
    text.append(buffer, static_cast<size_t>(count));
    if (seen) seen(text);
  }
  close(file);
  return text;
}

// Waits; false as soon as `ended` says so.
inline bool still_runs(const std::stop_token& ended, int seconds) {
  for (int tenths = 0; tenths < 10 * seconds && !ended.stop_requested(); ++tenths) usleep(100'000);
  return !ended.stop_requested();
}

// Waits until a pipe's writer has filled it, or waits for other reasons.
inline void wait_until_full(int file) {
  int before = -1, now = 0;
  while (now != before) {
    before = now;
    usleep(500'000);
    if (ioctl(file, FIONREAD, &now) != 0) return;
  }
}

inline void kill_unless_it_ends(pid_t child, int seconds) {
  siginfo_t info = {};
  for (int tenths = 0; tenths < 10 * seconds && info.si_pid == 0; ++tenths) {
    usleep(100'000);
    waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
  }
  if (info.si_pid == 0) kill(child, SIGKILL);
}

[[noreturn]] inline void become_command(const std::vector<std::string>& arguments, const Setting& setting) {
  if (chdir(setting.directory.c_str()) != 0) _exit(125);
  if (setting.to_group) setpgid(0, 0);
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, SIG_DFL);  // `make test &` ignores the first
  for (const auto& [name, value] : setting.environment) setenv(name.c_str(), value.c_str(), 1);
  if (setting.largest_file > 0) {
    const rlimit limit{static_cast<rlim_t>(setting.largest_file), static_cast<rlim_t>(setting.largest_file)};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  std::vector<char*> words = {const_cast<char*>(REMAT_COMMAND)};
  for (const auto& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(REMAT_COMMAND, words.data());
  _exit(126);
}

inline Outcome run_command(const std::vector<std::string>& arguments, const Setting& setting = {}) {
  int out[2], err[2];
  if (setting.columns > 0) {
    winsize size = {};
    size.ws_row = 24;
    size.ws_col = static_cast<unsigned short>(setting.columns);
    if (openpty(&out[0], &out[1], nullptr, nullptr, &size) != 0) return {};
  } else if (pipe(out) != 0) {
    return {};
  }
  if (pipe(err) != 0) return {};
  const auto child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    for (const int file : {out[0], out[1], err[0], err[1]}) close(file);
    become_command(arguments, setting);
  }
  if (setting.reader_stops) fcntl(out[1], F_SETPIPE_SZ, 8192);
  close(out[1]);
  close(err[1]);
  Outcome outcome;
  std::thread errors([&] { outcome.err = drain(err[0]); });
  bool sent = setting.signal == 0 || setting.signal_seconds > 0;
  std::jthread sender([&](const std::stop_token& ended) {
    if (setting.signal_seconds > 0 && still_runs(ended, setting.signal_seconds)) kill(child, setting.signal);
    if (setting.signal_seconds > 0 && still_runs(ended, 20)) kill(child, SIGKILL);
  });
  outcome.out = drain(out[0], [&](const std::string& text) {
    if (sent || text.find(setting.signal_after) == std::string::npos) return;
    if (setting.reader_stops) wait_until_full(out[0]);
    if (setting.before_signal) setting.before_signal();
    kill(child, setting.signal);
    if (setting.to_group) kill(-child, setting.signal);
    sent = true;
    if (setting.reader_stops) kill_unless_it_ends(child, 20);
  });
  errors.join();
  sender.request_stop();
  sender.join();
  int status = 0;
  waitpid(child, &status, 0);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  return outcome;
}

}  // namespace remat::test

// bench/step.cpp -- runs training steps on demand and prints what each one took; bench/run.py drives it.
//
//   bench_step MODEL[:BATCH] [stock]      then one line per step on standard input:
//     plain                       a step without remat
//     record                      a session under the device's limit: everything is recorded, nothing dropped
//     budget BYTES | percent P    a session under a budget; P of the activation peak that `plain` last measured
//     keep_compute | drop_all     a policy over the whole forward pass
//
// `stock` leaves PyTorch's own CPU allocator in place (then only `plain` works, and no bytes are counted).
#include <chrono>
#include <ctime>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>
#include <remat/remat.h>
#include <torch/csrc/autograd/autograd.h>

#include "zoo/task.h"

namespace {

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Worker {
 public:
  Worker(const std::string& name, bool stock) : stock_(stock) {
    const auto colon = name.find(':');
    const int64_t batch = colon == std::string::npos ? 0 : std::stoll(name.substr(colon + 1));
    if (!stock_) remat::memory::start_accounting();
    task_ = remat::zoo::make_task(name.substr(0, colon), batch);
  }

  nlohmann::json step(const std::string& command) {
    task_.model->zero_grad();
    at::manual_seed(7);
    if (!stock_) remat::memory::reset_peak();
    const int64_t baseline = stock_ ? 0 : remat::memory::current();
    std::istringstream words(command);
    std::string variant;
    words >> variant;
    if (variant == "plain") return plain(baseline);

    remat::Session& session = session_for(command, variant, words);
    const double wall = now(CLOCK_MONOTONIC);
    const double cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    auto step = session.step();
    {
      std::optional<remat::PolicyScope> scope;
      if (variant == "keep_compute") scope.emplace(remat::Policy::keep_compute());
      if (variant == "drop_all") scope.emplace(remat::Policy::drop_all());
      forward();
    }
    loss_.backward();
    loss_.reset();
    const auto& report = step.end();
    auto result = timed(wall, cpu);
    result["report"] = nlohmann::json::parse(remat::to_json(report));
    return result;
  }

 private:
  void forward() { loss_ = task_.loss(); }

  static nlohmann::json timed(double wall, double cpu) {
    return {{"wall", now(CLOCK_MONOTONIC) - wall}, {"cpu", now(CLOCK_PROCESS_CPUTIME_ID) - cpu}};
  }

  nlohmann::json plain(int64_t baseline) {
    const double wall = now(CLOCK_MONOTONIC);
    const double cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    forward();
    loss_.backward();
    loss_.reset();
    auto result = timed(wall, cpu);
    if (!stock_) {
      activation_peak_ = remat::memory::peak() - baseline;
      result["baseline"] = baseline;
      result["activation_peak"] = activation_peak_;
    }
    return result;
  }

  remat::Session& session_for(const std::string& command, const std::string& variant, std::istringstream& words) {
    auto& session = sessions_[command];
    if (session) return *session;
    remat::SessionOptions options;
    if (variant == "budget") {
      int64_t bytes = 0;
      words >> bytes;
      options.budget = remat::Budget::bytes(bytes);
    } else if (variant == "percent") {
      double share = 0;
      words >> share;
      const auto extra = static_cast<int64_t>(static_cast<double>(activation_peak_) * share / 100);
      options.budget = remat::Budget::bytes(remat::memory::current() + extra);
    } else if (variant != "record" && variant != "keep_compute" && variant != "drop_all") {
      throw remat::Error("[bench_step] unknown command \"" + command + "\"; see the top of bench/step.cpp");
    }
    session.emplace(options);
    return *session;
  }

  bool stock_;
  remat::zoo::Task task_;
  at::Tensor loss_;
  int64_t activation_peak_ = 0;
  std::map<std::string, std::optional<remat::Session>> sessions_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: bench_step MODEL[:BATCH] [stock]\n";
    return 2;
  }
  try {
    Worker worker(argv[1], argc > 2 && std::string(argv[2]) == "stock");
    for (std::string line; std::getline(std::cin, line);) {
      nlohmann::json result;
      try {
        result = worker.step(line);
      } catch (const std::exception& failure) {
        result = {{"error", failure.what()}};
      }
      result["command"] = line;
      std::cout << result.dump() << std::endl;
    }
  } catch (const std::exception& failure) {
    std::cerr << failure.what() << "\n";
    return 1;
  }
}

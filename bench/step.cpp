// bench/step.cpp -- runs training steps on demand and prints what each one took; bench/run.py drives it.
//
//   bench_step MODEL[/LAYERS][:BATCH] [stock]      then one line per step on standard input:
//     plain                       a step without remat
//     record                      a session under the device's limit: everything is recorded, nothing dropped
//     budget BYTES | percent P    a session under a budget; P of the activation peak that `plain` last measured
//     activations BYTES           the same for so many bytes beside those that are alive before the step
//     share P                     a session that measures itself what P is a share of
//     keep_compute | drop_all     a policy over the whole forward pass
//     keep_within P               keep_compute in a session under `percent P`
//     about                       no step: versions and threads
//
// A step is forward and backward, no optimizer. Gradient buffers exist before it and are zero: the peak above the
// baseline is that of activations alone. With `fresh` after a command there are none, and the step allocates them, as
// it does after zero_grad() in a training loop. With `unpacked` nothing is held packed, with `online`
// nothing is planned, with `moved` values may move to a file of 8 GiB in the directory that REMAT_BENCH_DISK names.
//
// Every step begins with the same parameters and generator state; `gradients` is a checksum of what it computed, the
// same for all commands. `stock` leaves PyTorch's own CPU allocator in place: only `plain` works, no bytes are counted.
#include <sys/resource.h>

#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros_like.h>
#include <remat/remat.h>
#include <torch/version.h>
#include <nlohmann/json.hpp>

#include "zoo/task.h"

namespace {

using remat::Error;

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

/// What a command line says.
struct Command {
  std::string text;
  std::string variant;
  double number = 0;
  bool fresh = false;
  bool unpacked = false;
  bool online = false;
  bool moved = false;

  explicit Command(const std::string& line) : text(line) {
    std::istringstream words(line);
    words >> variant;
    static const std::set<std::string> with_number = {"budget", "percent", "activations", "share", "keep_within"};
    if (with_number.contains(variant) && !(words >> number && number > 0)) {
      throw Error("[bench_step] \"" + line + "\" lacks a positive number; see the top of bench/step.cpp");
    }
    static const std::map<std::string, bool Command::*> flags = {
        {"fresh", &Command::fresh}, {"unpacked", &Command::unpacked}, {"online", &Command::online}, {"moved", &Command::moved}};
    for (std::string word; words >> word;) {
      const auto flag = flags.find(word);
      if (flag == flags.end()) {
        throw Error("[bench_step] \"" + line + "\": unknown word \"" + word + "\"; see the top of bench/step.cpp");
      }
      this->*flag->second = true;
    }
  }
};

class Worker {
 public:
  Worker(const std::string& name, bool stock) : stock_(stock) {
    const auto colon = name.find(':');
    const int64_t batch = colon == std::string::npos ? 0 : std::stoll(name.substr(colon + 1));
    if (!stock_) remat::memory::start_accounting();
    const auto model = name.substr(0, colon);
    const auto slash = model.find('/');
    task_ = slash == std::string::npos
                ? remat::zoo::make_task(model, batch)
                : remat::zoo::make_deep_task(model.substr(0, slash), std::stoll(model.substr(slash + 1)), batch);
  }

  nlohmann::json run(const std::string& line) {
    const Command command(line);
    if (command.variant == "about") return about();
    if (stock_ && command.variant != "plain") throw Error("[bench_step] with `stock` only `plain` works");
    prepare_gradients(command.fresh);
    at::manual_seed(7);
    try {
      auto result = command.variant == "plain" ? plain(command) : managed(command);
      result["gradients"] = gradients();
      return result;
    } catch (...) {
      loss_.reset();  // what a step that failed leaves behind is not the next one's baseline
      throw;
    }
  }

 private:
  void prepare_gradients(bool fresh) {
    task_.model->zero_grad(/*set_to_none=*/fresh);
    for (auto& parameter : task_.model->parameters()) {
      auto& gradient = parameter.mutable_grad();
      if (!fresh && !gradient.defined()) gradient = at::zeros_like(parameter);
    }
  }

  /// Forward and backward, timed.
  nlohmann::json timed(const std::function<void()>& step) {
    const int64_t faults = page_faults();
    const double wall = now(CLOCK_MONOTONIC);
    const double cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    step();
    return {{"wall", now(CLOCK_MONOTONIC) - wall},
            {"cpu", now(CLOCK_PROCESS_CPUTIME_ID) - cpu},
            {"page_faults", page_faults() - faults}};
  }

  void backward() {
    loss_.backward();
    loss_.reset();
  }

  nlohmann::json plain(const Command& command) {
    const int64_t baseline = stock_ ? 0 : remat::memory::current();
    if (!stock_) remat::memory::reset_peak();
    auto result = timed([&] {
      loss_ = task_.loss();
      backward();
    });
    if (stock_) return result;
    plain_activation_peak_[command.fresh] = remat::memory::peak() - baseline;
    result["baseline_bytes"] = baseline;
    result["activation_peak_bytes"] = plain_activation_peak_[command.fresh];
    return result;
  }

  nlohmann::json managed(const Command& command) {
    auto& session = session_for(command);
    auto result = timed([&] {
      auto step = session.step();
      {
        std::optional<remat::PolicyScope> scope;
        if (command.variant == "keep_compute" || command.variant == "keep_within") {
          scope.emplace(remat::Policy::keep_compute());
        }
        if (command.variant == "drop_all") scope.emplace(remat::Policy::drop_all());
        loss_ = task_.loss();
      }
      backward();
      step.end();
    });
    result["report"] = nlohmann::json::parse(remat::to_json(session.report()));
    result["activation_peak_bytes"] = session.report().activation_peak_bytes();
    return result;
  }

  remat::Session& session_for(const Command& command) {
    auto& session = sessions_[command.text];
    if (!session) {
      remat::SessionOptions options{.budget = budget_of(command), .pack = !command.unpacked};
      if (command.online) options.planner = "online";
      if (command.moved) options.disk = remat::Disk(disk_directory(), int64_t{8} << 30);
      session.emplace(std::move(options));
    }
    return *session;
  }

  static std::string disk_directory() {
    const char* const directory = std::getenv("REMAT_BENCH_DISK");
    if (directory == nullptr) throw Error("[bench_step] `moved` needs a directory in REMAT_BENCH_DISK");
    return directory;
  }

  remat::Budget budget_of(const Command& command) {
    if (command.variant == "budget") return remat::Budget::bytes(static_cast<int64_t>(command.number));
    if (command.variant == "share") return remat::Budget::percent(command.number);
    if (command.variant == "activations") {
      return remat::Budget::bytes(remat::memory::current() + static_cast<int64_t>(command.number));
    }
    if (command.variant == "percent" || command.variant == "keep_within") {
      const int64_t plain = plain_activation_peak_[command.fresh];
      if (plain == 0) throw Error("[bench_step] \"" + command.text + "\" needs plain's peak; run `plain` first");
      const double extra = static_cast<double>(plain) * command.number / 100;
      return remat::Budget::bytes(remat::memory::current() + static_cast<int64_t>(extra));
    }
    if (command.variant != "record" && command.variant != "keep_compute" && command.variant != "drop_all") {
      throw Error("[bench_step] unknown command \"" + command.text + "\"; see the top of bench/step.cpp");
    }
    return {};
  }

  /// A checksum of every gradient.
  std::string gradients() const {
    uint64_t sum = 0;
    for (const auto& parameter : task_.model->parameters()) {
      const at::Tensor gradient = parameter.grad().contiguous();
      sum = XXH3_64bits_withSeed(gradient.const_data_ptr(), gradient.nbytes(), sum);
    }
    return std::to_string(sum);
  }

  static nlohmann::json about() {
    return {{"torch", TORCH_VERSION}, {"compiler", "gcc " __VERSION__}, {"threads", at::get_num_threads()}};
  }

  bool stock_;
  remat::zoo::Task task_;
  at::Tensor loss_;
  std::map<bool, int64_t> plain_activation_peak_;  ///< by `fresh`
  std::map<std::string, std::optional<remat::Session>> sessions_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: bench_step MODEL[/LAYERS][:BATCH] [stock]\n";
    return 2;
  }
  try {
    Worker worker(argv[1], argc > 2 && std::string(argv[2]) == "stock");
    for (std::string line; std::getline(std::cin, line);) {
      nlohmann::json result;
      try {
        result = worker.run(line);
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

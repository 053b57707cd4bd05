// tests/cli/ranks_fixture.h -- `remat train` on several processes, which it or somebody else starts.
#pragma once

#include <bit>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/command_fixture.h"

namespace remat::test {

/// Trainings on several processes.
class RanksFixture : public TrainingFixture {
 protected:
  RanksFixture() { directory_.write("held_out", read_all(directory_.path("text")).substr(0, 3500)); }

  /// Loss bits of each step.
  std::vector<uint32_t> losses(const Words& more) const {
    const auto outcome = train(joined({"--steps", "5", "--json", "run.json"}, more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::vector<uint32_t> result;
    const auto run = json("run.json");
    for (const auto& step : run.at("steps")) result.push_back(step.at("loss_bits"));
    EXPECT_EQ(result.size(), 5U);
    return result;
  }

  /// The ways to train on several processes.
  static std::vector<Words> ways() { return {{"--ranks", "2"}, {"--ranks", "2", "--shard"}}; }

  /// Loss bits by step, of a training whose results are in `file`.
  std::map<int64_t, uint32_t> steps(const std::string& file) const {
    std::map<int64_t, uint32_t> result;
    const auto run = json(file);
    for (const auto& step : run.at("steps")) result[step.at("step")] = step.at("loss_bits");
    return result;
  }

  static std::string unused_port() {
    static int calls = 0;
    return std::to_string(20000 + (getpid() + 1009 * calls++) % 20000);
  }

  /// One of `size` processes as torchrun starts them.
  Outcome rank(int number, const std::string& port, const Words& words, Setting setting = {}, int size = 2) const {
    setting.environment = {{"RANK", std::to_string(number)},
                           {"WORLD_SIZE", std::to_string(size)},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", port}};
    return train(words, setting);
  }

  /// Both of them.
  std::pair<Outcome, Outcome> torchrun(const Words& first, const Words& second, const Setting& of_first = {}) const {
    const std::string port = unused_port();
    std::pair<Outcome, Outcome> outcomes;
    std::thread other([&] { outcomes.second = rank(1, port, second); });
    outcomes.first = rank(0, port, first, of_first);
    other.join();
    return outcomes;
  }

  static float number(uint32_t bits) { return std::bit_cast<float>(bits); }
};

}  // namespace remat::test

// bench/fit_halving.cpp -- what `remat fit` finds, found by halving with real steps; bench/fit.py compares them.
//
//   bench_fit_halving MODEL [the options of `remat fit`]      prints one JSON object
#include <chrono>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/halving.h"
#include "cli/fitting.h"
#include "cli/options.h"

int main(int count, char** words) {
  using namespace remat;
  std::vector<std::string> arguments = {"fit"};
  arguments.insert(arguments.end(), words + 1, words + count);
  try {
    const cli::FitSettings settings = cli::parse_options(arguments).fit;
    const auto sizes = cli::sizes_along(settings);
    const int64_t budget = cli::ZooSteps::budget_bytes(settings);
    cli::ZooSteps steps(settings, budget);
    int64_t runs = 0;
    const auto largest = [&](FitMode mode) {
      return bench::largest_by_halving(sizes, [&](int64_t size) {
        ++runs;
        const FitTrial trial = steps.run(size, mode);
        return trial.fits && trial.peak_bytes <= budget;
      });
    };
    const auto begin = std::chrono::steady_clock::now();
    const int64_t plain = largest(FitMode::kPlain), with_remat = largest(FitMode::kRemat);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const nlohmann::json found = {
        {"sizes", sizes}, {"plain", plain}, {"largest", with_remat}, {"seconds", seconds.count()}, {"runs", runs}};
    std::cout << found.dump(1) << '\n';
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

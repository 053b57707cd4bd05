// bench/record_cost.cpp -- what recording adds to one operator on tensors too small to matter.
//
// Runs of 2,000 operators with and without a session, in turn; prints the median of each and of their difference, in
// seconds per operator, as JSON. Thread count 1: tiny operators do not run in parallel.
#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <vector>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <remat/remat.h>
#include <nlohmann/json.hpp>

namespace {

constexpr int kOperators = 2000;

/// CPU time of this thread: other work on the machine does not count.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// A chain of unary, binary and scalar operators, as much of it saved for backward as in a real model.
double seconds_per_operator(const at::Tensor& x, const at::Tensor& w) {
  const double begin = thread_seconds();
  at::Tensor y = x;
  for (int i = 0; i < kOperators / 4; ++i) {
    y = at::mul(y, w);
    y = at::add(y, x);
    y = at::sigmoid(y);
    y = at::add(y, w);
  }
  return (thread_seconds() - begin) / kOperators;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 200;
  at::set_num_threads(1);
  remat::memory::start_accounting();
  const at::Tensor x = at::ones({4, 4}).requires_grad_();
  const at::Tensor w = at::ones({4, 4}).requires_grad_();
  std::vector<double> plain;
  std::vector<double> recorded;
  std::vector<double> difference;
  remat::Session session;
  for (int round = 0; round < rounds + 10; ++round) {
    const double without = seconds_per_operator(x, w);
    auto step = session.step();
    const double with = seconds_per_operator(x, w);
    step.end();
    if (round < 10) continue;  // warm-up
    plain.push_back(without);
    recorded.push_back(with);
    difference.push_back(with - without);
  }
  std::cout << nlohmann::json{{"operators", kOperators},
                              {"rounds", rounds},
                              {"plain_seconds", median(plain)},
                              {"recorded_seconds", median(recorded)},
                              {"record_cost_seconds", median(difference)}}
                   .dump()
            << "\n";
}

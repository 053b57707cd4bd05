// A user's Debug build: the user's assertions fire, torch's headers are those of a build without NDEBUG, and remat
// gives the same bits as plain within a budget. With the argument "fail" an assertion does fail.
#include <cassert>
#include <cstring>
#include <iostream>
#include <vector>

#include <remat/remat.h>
#include <torch/torch.h>

#ifdef NDEBUG
#error "a user's Debug build has lost its assertions"
#endif

namespace {

struct Training {
  torch::nn::Sequential model;

  Training() {
    torch::manual_seed(1);
    for (int i = 0; i < 8; ++i) {
      model->push_back(torch::nn::Linear(64, 64));
      model->push_back(torch::nn::GELU());
      model->push_back(torch::nn::Dropout(0.1));
    }
  }

  std::vector<torch::Tensor> step() {
    torch::manual_seed(2);
    model->zero_grad();
    const auto x = torch::randn({4, 64, 64});
    const auto loss = torch::mse_loss(model->forward(x), x);
    loss.backward();
    std::vector<torch::Tensor> results = {loss.detach()};
    for (const auto& parameter : model->parameters()) results.push_back(parameter.grad().clone());
    return results;
  }
};

[[maybe_unused]] bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

int main(int count, char** words) {
  if (count > 1 && std::strcmp(words[1], "fail") == 0) assert(count == 1 && "an assertion of the user's");
  remat::memory::start_accounting();
  Training training;
  const auto plain = training.step();
  remat::Session session({.budget = "60%"});
  for (int i = 0; i < 4; ++i) {
    auto step = session.step();
    const auto ours = training.step();
    const auto& report = step.end();
    assert(report.peak_bytes <= report.budget_bytes);
    assert(i == 0 || report.values_dropped + report.values_packed > 0);
    for (size_t t = 0; t < plain.size(); ++t) assert(same_bits(plain[t], ours[t]));
  }
  std::cout << remat::to_text(session.report());
}

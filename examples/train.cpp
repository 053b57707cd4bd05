// Trains a small network within 32 MiB. The report says what plain LibTorch would have needed.
#include <iostream>

#include <remat/remat.h>
#include <torch/torch.h>

int main() {
  torch::nn::Sequential model;
  for (int i = 0; i < 16; ++i) {
    model->push_back(torch::nn::Linear(256, 256));
    model->push_back(torch::nn::GELU());
  }
  torch::optim::AdamW optimizer(model->parameters());
  remat::Session session({.budget = "32MiB"});

  for (int i = 0; i < 5; ++i) {
    auto x = torch::randn({1024, 256});
    optimizer.zero_grad();
    auto step = session.step();  // from here on tensors take 32 MiB at most, parameters included
    torch::mse_loss(model->forward(x), x).backward();
    step.end();
    optimizer.step();
  }
  std::cout << remat::to_text(session.report());
}

// Trains within 40 % of the memory that activations take, and never holds all gradients.
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
  remat::Session session({.budget = "40%"});      // or bytes: "6GiB"
  remat::OptimizerInBackward updates(optimizer);  // in place of optimizer.step()

  for (int i = 0; i < 5; ++i) {
    auto x = torch::randn({1024, 256});
    auto step = session.step();
    torch::mse_loss(model->forward(x), x).backward();
    step.end();
  }
  std::cout << remat::to_text(session.report());
}

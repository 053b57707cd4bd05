// Trains a small network within 24 MiB, with gradients of four micro-batches and matrix products in bfloat16.
#include <iostream>

#include <ATen/autocast_mode.h>
#include <remat/remat.h>
#include <torch/torch.h>

namespace {

/// Products and convolutions in bfloat16 while it lives.
class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
};

}  // namespace

int main() {
  constexpr int kMicroBatches = 4;
  torch::nn::Sequential model;
  for (int i = 0; i < 16; ++i) {
    model->push_back(torch::nn::Linear(256, 256));
    model->push_back(torch::nn::GELU());
  }
  torch::optim::AdamW optimizer(model->parameters());
  remat::Session session({.budget = "24MiB"});

  for (int i = 0; i < 5; ++i) {
    optimizer.zero_grad();
    for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
      auto x = torch::randn({1024, 256});
      auto step = session.step();  // a micro-batch; gradients of those before are in its budget
      torch::Tensor loss;
      {
        const Autocast autocast;
        loss = torch::mse_loss(model->forward(x), x) / kMicroBatches;
      }
      loss.backward();
      step.end();
    }
    optimizer.step();
  }
  std::cout << remat::to_text(session.report());
}

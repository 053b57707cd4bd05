// A language model of which the logits, 512 MiB, are never whole.
#include <iostream>

#include <remat/remat.h>
#include <torch/torch.h>

int main() {
  const int64_t tokens = 4096, width = 128, words = 32768;
  torch::nn::Embedding embedding(words, width);
  torch::nn::Sequential layers(torch::nn::Linear(width, width), torch::nn::GELU());
  remat::memory::start_accounting();

  auto text = torch::randint(words, {tokens + 1}, torch::kLong);
  remat::memory::reset_peak();
  const int64_t before = remat::memory::current();
  auto hidden = layers->forward(embedding(text.slice(0, 0, -1)));  // (tokens, width)
  // The bits of torch::nn::functional::cross_entropy(torch::linear(hidden, embedding->weight), ...)
  auto loss = remat::linear_cross_entropy(hidden, embedding->weight, text.slice(0, 1));
  loss.backward();
  std::cout << loss.item<float>() << ", " << ((remat::memory::peak() - before) >> 20) << " MiB, tiles of "
            << remat::last_tile_choice().rows << " tokens: " << remat::last_tile_choice().reason << "\n";
}

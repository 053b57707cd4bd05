// tests/support/compare.h -- runs a training step twice, plain and under remat, and compares every bit.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/remat.h>

namespace remat::test {

/// What a step leaves behind.
struct Outcome {
  std::vector<std::pair<std::string, at::Tensor>> tensors;  ///< losses, gradients, buffers, generator state

  void add(std::string name, const at::Tensor& tensor) {
    tensors.emplace_back(std::move(name), tensor.defined() ? tensor.detach().clone() : tensor);
  }
  void add_module(const torch::nn::Module& module) {
    for (const auto& p : module.named_parameters()) add("grad of " + p.key(), p.value().grad());
    for (const auto& b : module.named_buffers()) add("buffer " + b.key(), b.value());
  }
  void add_generator() { add("generator state", at::detail::getDefaultCPUGenerator().get_state()); }
};

inline Outcome backward_of(const torch::nn::Module& module, const at::Tensor& loss) {
  loss.backward();
  Outcome outcome;
  outcome.add("loss", loss);
  outcome.add_module(module);
  outcome.add_generator();
  return outcome;
}

inline Outcome backward_of(const std::vector<at::Tensor>& leaves, const at::Tensor& loss) {
  loss.backward();
  Outcome outcome;
  outcome.add("loss", loss);
  for (const auto& leaf : leaves) outcome.add("gradient", leaf.grad());
  outcome.add_generator();
  return outcome;
}

/// Of one type and one layout, too: what follows may depend on strides.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.strides() != b.strides() || a.scalar_type() != b.scalar_type()) return false;
  const auto x = a.contiguous();
  const auto y = b.contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

inline void expect_same_bits(const Outcome& plain, const Outcome& other, const std::string& what) {
  ASSERT_EQ(plain.tensors.size(), other.tensors.size()) << what;
  for (size_t i = 0; i < plain.tensors.size(); ++i) {
    EXPECT_EQ(plain.tensors[i].first, other.tensors[i].first) << what;
    EXPECT_TRUE(same_bits(plain.tensors[i].second, other.tensors[i].second))
        << what << ": " << plain.tensors[i].first << " differs";
  }
}

/// A program builds its model from the seeded generator, runs forward and backward, and says what to compare.
using Program = std::function<Outcome()>;

inline Outcome run_seeded(const Program& program, uint64_t seed = 7) {
  torch::manual_seed(seed);
  return program();
}

/// Runs `program` plain, under drop_all in one scope, in a session without pressure, and under verify.
void expect_exact(const Program& program);

}  // namespace remat::test

// Tensors that change between forward and backward in ways that are no operators: pointers, .data, resized storages.
#include "modification.h"

#include <algorithm>
#include <optional>

#include <sys/mman.h>

namespace remat::test {
namespace {

TEST(Modification, OfMemoryThatTheUserOwns) {
  expect_exact_or_refused([] {
    std::vector<float> memory(32, 0.25F);
    auto x = torch::randn({4, 8}).requires_grad_();
    auto c = torch::from_blob(memory.data(), {4, 8});
    auto loss = ((x * c).sin() * c).sum();
    loss.backward();
    return gradients({x});
  });
}

void expect_exact_with_everything_dropped(const Program& program) {
  memory::start_accounting();
  torch::manual_seed(7);
  const Outcome plain = program();
  Session session;
  torch::manual_seed(7);
  auto step = session.step();
  {
    const PolicyScope scope(Policy::drop_all());
    expect_same_bits(plain, program(), "everything dropped");
  }
  EXPECT_GT(step.end().values_dropped, 0);
}

TEST(Modification, OfABufferThatIsGoneBeforeBackward) {
  // How batches are read in C++: a copy is taken while the buffer is there.
  constexpr int64_t kRows = 128, kColumns = 256;
  constexpr size_t kBytes = kRows * kColumns * sizeof(float);
  const auto read_batch = [](bool converted) {
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* const numbers = static_cast<float*>(memory);
    for (int64_t i = 0; i < kRows * kColumns; ++i) numbers[i] = 0.01F * static_cast<float>(i);
    at::Tensor batch = converted ? torch::from_blob(memory, {kRows, kColumns}, torch::kByte).to(torch::kFloat) / 16
                                 : torch::from_blob(memory, {kRows, kColumns}).clone();
    munmap(memory, kBytes);  // whoever reads it now ends the process
    return batch;
  };
  for (const bool converted : {false, true}) {
    expect_exact_with_everything_dropped([&] {
      auto x = torch::randn({kRows, kColumns}).requires_grad_();
      at::Tensor y;
      {
        const at::Tensor batch = read_batch(converted);
        y = ((x * batch).sin() * (batch + 1)).sin();
      }
      y.sum().backward();
      return gradients({x});
    });
  }
}

TEST(Modification, OfABufferThatIsFilledForEachMicroBatch) {
  std::vector<float> memory(32);
  expect_exact_with_everything_dropped([&] {
    auto x = torch::randn({4, 8}).requires_grad_();
    at::Tensor loss = torch::zeros({});
    for (int i = 0; i < 3; ++i) {
      std::fill(memory.begin(), memory.end(), 0.1F * static_cast<float>(i));
      const auto batch = torch::from_blob(memory.data(), {4, 8}).clone();
      loss = loss + ((x * batch).sin() * (batch + 1)).exp().sum();
    }
    loss.backward();
    return gradients({x});
  });
}

TEST(Modification, ThroughAPointerOfAFreshTensor) {
  // How batches, masks and tables are filled in C++. No operator and no version counter sees it.
  const std::function<at::Tensor()> factories[] = {[] { return torch::empty({8}); },
                                                   [] { return torch::zeros({8}); },
                                                   [] { return torch::ones({8}); },
                                                   [] { return torch::full({8}, 2.5F); },
                                                   [] { return torch::empty_like(torch::ones({8})); },
                                                   [] { return torch::arange(8, torch::kFloat); }};
  for (size_t i = 0; i < std::size(factories); ++i) {
    SCOPED_TRACE("factory " + std::to_string(i));
    EXPECT_FALSE(expect_exact_or_refused([&] {
      auto x = torch::randn({4, 8}).requires_grad_();
      at::Tensor y;
      {
        auto table = factories[i]();
        auto* values = table.data_ptr<float>();
        for (int64_t k = 0; k < 8; ++k) values[k] = static_cast<float>(k) * 0.1F;
        y = (x * (table + 1)).sin() * table;  // saves the table, and a value made from it
      }
      y.sum().backward();
      return gradients({x});
    }));
  }
}

TEST(Modification, ThroughAPointerBetweenTwoReads) {
  // No version count and no operator shows such a write; only the contents do.
  EXPECT_FALSE(expect_exact_or_refused([&] {
    auto x = torch::randn({4, 8}).requires_grad_();
    auto table = torch::zeros({8});
    auto y = x * (table + 1);
    auto* values = table.data_ptr<float>();
    for (int64_t k = 0; k < 8; ++k) values[k] = static_cast<float>(k) * 0.1F;
    y = y.sin() * (table + 1);
    y.sum().backward();
    return gradients({x});
  }));
}

TEST(Modification, ThroughAPointerBetweenMicroBatches) {
  // A staging buffer that every micro-batch is copied into, as data loaders do.
  EXPECT_FALSE(expect_exact_or_refused([&] {
    auto weight = torch::randn({8, 8}).requires_grad_();
    auto batch = torch::zeros({4, 8});
    for (int i = 1; i < 4; ++i) {
      auto* values = batch.data_ptr<float>();
      for (int64_t k = 0; k < batch.numel(); ++k) values[k] = static_cast<float>(i * k) * 0.01F;
      (batch * 2).mm(weight).sin().sum().backward();
    }
    return gradients({weight});
  }));
}

TEST(Modification, ThroughAPointerOfAnOperatorsResult) {
  const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> uses[] = {
      [](const at::Tensor& x, const at::Tensor& mask) { return x.sin() * mask; },         // saves what no operator made
      [](const at::Tensor& x, const at::Tensor& mask) { return x.sin() * (mask + 1); }};  // saves what was made from it
  for (const auto& use : uses) {
    PolicyScope scope(Policy::drop_all());
    auto x = torch::randn({4, 8}).requires_grad_();
    at::Tensor y;
    {
      auto mask = x.detach().clone();
      mask.data_ptr<float>()[3] = 7;
      y = use(x, mask);
    }
    EXPECT_THROW(y.sum().backward(), Error);
  }
}

// Plain's saved tensor has the other contents then, which no recompute gives.
TEST(Modification, ThroughAPointerOfASavedResult) {
  PolicyScope scope(Policy::drop_all());
  auto x = torch::randn({4, 8}).requires_grad_();
  at::Tensor y;
  {
    const auto mask = x.detach().clone();
    y = x.sin() * mask;
    mask.data_ptr<float>()[3] = 7;
  }
  EXPECT_THROW(y.sum().backward(), Error);
}

TEST(Modification, ThroughDataAfterTheScope) {
  auto x = torch::randn({4, 8}).requires_grad_();
  auto h = x * 2;
  at::Tensor y;
  {
    PolicyScope scope(Policy::drop_all());
    y = (h.unsqueeze(0).clone() * 3).sin();
  }
  h.variable_data().clamp_(-0.5, 0.5);
  y.variable_data().add_(1);
  try {
    y.sum().backward();
    ADD_FAILURE() << "not noticed";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("aten::clone cannot be repeated"), std::string::npos) << e.what();
  }
}

TEST(Modification, InferenceTensorsAreReadOnly) {
  expect_exact_or_refused([] {
    at::Tensor c;
    {
      const c10::InferenceMode inference;
      c = torch::randn({4, 8});
    }
    auto x = torch::randn({4, 8}).requires_grad_();
    auto h = (x + c).sin();  // adding saves nothing
    auto y = (h.detach() * 2 + c).cos() + h;
    (y * y).sum().backward();
    return gradients({x});
  });
}

TEST(Modification, StorageResizedToZeroAndBack) {
  // What sharded training does to a gathered parameter: nothing to read remains between forward and backward.
  expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_(), b = torch::randn({4, 8});
    auto loss = (x + b).sin().sum();
    b.storage().unsafeGetStorageImpl()->set_nbytes(0);
    b = at::Tensor();
    loss.backward();
    return gradients({x});
  });
}

TEST(Modification, AParameterThroughDataAfterTheScope) {
  // No version counter and no operator that anybody records shows it: plain uses what it saved, a replay could not.
  torch::manual_seed(1);
  auto p = torch::randn({12, 3}).requires_grad_();
  at::Tensor y;
  {
    const PolicyScope scope(Policy::drop_all());
    y = torch::tanh(torch::exp(p));
  }
  p.variable_data().mul_(0.5);
  try {
    y.sum().backward();
    FAIL() << "exp cannot be repeated";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("aten::exp cannot be repeated"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace remat::test

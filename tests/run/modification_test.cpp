// Tensors that change between forward and backward: where plain throws remat throws; where plain does not, remat is
// exact or refuses and says which operator.
#include "support/compare.h"

#include <optional>

namespace remat::test {
namespace {

struct Result {
  std::optional<std::string> error;
  bool ours = false;
  Outcome outcome;
};

Result attempt(const std::function<Outcome()>& program) {
  Result result;
  torch::manual_seed(7);
  try {
    result.outcome = program();
  } catch (const InternalError&) {
    throw;
  } catch (const std::exception& e) {
    result.error = e.what();
    result.ours = dynamic_cast<const Error*>(&e) != nullptr;
  }
  return result;
}

void judge(const Result& plain, const Result& other, const std::string& how) {
  if (plain.error) {
    ASSERT_TRUE(other.error) << how << ": plain throws " << *plain.error;
    // Says which operator, in PyTorch's words (a version error) or in ours.
    EXPECT_TRUE(other.error->find("modified") != std::string::npos || other.error->find("::") != std::string::npos)
        << how << ": " << *other.error;
  } else if (other.error) {
    EXPECT_TRUE(other.ours) << how << ": " << *other.error;
    EXPECT_NE(other.error->find("::"), std::string::npos) << how << " names no operator: " << *other.error;
  } else {
    expect_same_bits(plain.outcome, other.outcome, how);
  }
}

/// Runs the step that `prepare` returns, plain and in every way of remat. What `prepare` makes is older than the step,
/// as parameters and buffers are. Returns whether plain threw.
bool expect_exact_or_refused_after(const std::function<Program()>& prepare) {
  memory::start_accounting();
  const auto prepared = [&] {
    torch::manual_seed(7);
    return prepare();
  };
  const Result plain = attempt(prepared());
  const auto within = [&](const char* how, bool session, bool verify, bool drop) {
    const int64_t before = memory::current();
    {
      const Program program = prepared();
      std::optional<Session> owner;
      std::optional<Step> step;
      std::optional<PolicyScope> scope;
      if (session) owner.emplace(SessionOptions{.budget = {}, .device = c10::kCPU, .verify = verify});
      if (session) step.emplace(owner->step());
      if (drop) scope.emplace(Policy::drop_all());
      judge(plain, attempt(program), how);
    }
    EXPECT_EQ(memory::current(), before) << how << " leaks";
  };
  within("drop all, no session", false, false, true);
  within("session", true, false, false);
  within("drop all, verified", true, true, true);
  return plain.error.has_value();
}

/// The same for a step that makes all its tensors itself.
bool expect_exact_or_refused(const Program& program) {
  return expect_exact_or_refused_after([&] { return program; });
}

Outcome gradients(const std::vector<at::Tensor>& leaves) {
  Outcome outcome;
  for (const auto& leaf : leaves) outcome.add("grad", leaf.grad());
  for (const auto& leaf : leaves) outcome.add("value", leaf);
  outcome.add_generator();
  return outcome;
}

TEST(Modification, OfAWeightThatBackwardReads) {
  EXPECT_TRUE(expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_(), w = torch::randn({8, 8}).requires_grad_();
    auto loss = x.mm(w).sin().sum();
    {
      const torch::NoGradGuard no_grad;
      w.add_(1);
    }
    loss.backward();
    return gradients({x, w});
  }));
}

TEST(Modification, OfABiasThatOnlyAReplayReads) {
  EXPECT_FALSE(expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_(), w = torch::randn({8, 8}).requires_grad_();
    auto b = torch::randn({8}).requires_grad_();
    auto loss = at::addmm(b, x, w).sin().sum();
    {
      const torch::NoGradGuard no_grad;
      b.add_(1);
    }
    loss.backward();
    return gradients({x, w, b});
  }));
}

TEST(Modification, OfAnInputThroughData) {
  expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_(), c = torch::randn({4, 8});
    auto loss = ((x + c).sin() * c).sum();
    c.variable_data().mul_(2);  // no version counts this
    loss.backward();
    return gradients({x});
  });
}

TEST(Modification, OfASavedResult) {
  EXPECT_TRUE(expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_();
    auto y = x.exp();
    auto loss = (y * 2).sum();
    y.add_(1);
    loss.backward();
    return gradients({x});
  }));
}

TEST(Modification, OfASavedInputThroughAView) {
  EXPECT_TRUE(expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_();
    auto h = x * 2;
    auto loss = h.sin().sum();
    h.narrow(0, 1, 2).zero_();
    loss.backward();
    return gradients({x});
  }));
}

TEST(Modification, OfATensorThatIsNotSaved) {
  EXPECT_FALSE(expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_();
    auto h = x + 1;
    auto y = h.sigmoid();  // saves its result, not h
    h.mul_(3);
    (y * h.detach()).sum().backward();
    return gradients({x});
  }));
}

/// Reads a running average and then updates it, several times, as normalization layers do.
Outcome read_and_update(const at::Tensor& x, const at::Tensor& average) {
  at::Tensor total = torch::zeros({});
  for (int i = 0; i < 4; ++i) {
    auto h = (x + average).sin();
    total = total + (h * h).sum();
    const torch::NoGradGuard no_grad;
    average.mul_(0.9).add_(h, 0.1);
  }
  total.backward();
  return gradients({x});
}

TEST(Modification, OfABufferReadEarlier) {
  EXPECT_FALSE(expect_exact_or_refused([] {
    return read_and_update(torch::randn({4, 8}).requires_grad_(), torch::zeros({4, 8}));
  }));
}

TEST(Modification, OfAnOlderBufferReadEarlier) {
  EXPECT_FALSE(expect_exact_or_refused_after([] {
    auto x = torch::randn({4, 8}).requires_grad_(), average = torch::ones({4, 8});
    return [=] { return read_and_update(x, average); };
  }));
}

TEST(Modification, OfAnOlderBufferThroughAViewAndByIndex) {
  EXPECT_FALSE(expect_exact_or_refused_after([] {
    auto x = torch::randn({4, 8}).requires_grad_(), cache = torch::ones({6, 8});
    return [=] {
      at::Tensor total = torch::zeros({});
      for (int64_t i = 0; i < 3; ++i) {  // a key-value cache: written at a place, then read as a whole
        {
          const torch::NoGradGuard no_grad;
          cache.narrow(0, i, 1).copy_(x.narrow(0, i, 1));
        }
        total = total + (x.mean(0) + cache).sin().sum();
        {
          const torch::NoGradGuard no_grad;
          cache.index_put_({torch::tensor({4 + i % 2})}, x[0] * (1.0 + i));
        }
        total = total + (x.mean(0) + cache).exp().sum();
      }
      total.backward();
      return gradients({x});
    };
  }));
}

TEST(Modification, OfAnOlderParameterThatOnlyAReplayReads) {
  EXPECT_FALSE(expect_exact_or_refused_after([] {
    auto x = torch::randn({4, 8}).requires_grad_(), w = torch::randn({8, 8}).requires_grad_();
    auto b = torch::randn({8}).requires_grad_();
    return [=] {
      auto loss = at::addmm(b, x, w).sin().sum();
      {
        const torch::NoGradGuard no_grad;
        b.add_(1);
      }
      loss.backward();
      return gradients({x, w, b});
    };
  }));
}

TEST(Modification, OfAnOlderWeightThatBackwardReads) {
  EXPECT_TRUE(expect_exact_or_refused_after([] {
    auto x = torch::randn({4, 8}).requires_grad_(), w = torch::randn({8, 8}).requires_grad_();
    return [=] {
      auto loss = x.mm(w).sin().sum();
      {
        const torch::NoGradGuard no_grad;
        w.add_(1);
      }
      loss.backward();
      return gradients({x, w});
    };
  }));
}

TEST(Modification, BySetDataBeforeBackward) {
  expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_(), w = torch::randn({8, 8}).requires_grad_();
    auto loss = (x.mm(w).sin() * x).sum();
    w.set_data(torch::ones({8, 8}));
    loss.backward();
    return gradients({x, w});
  });
}

TEST(Modification, BySetInForward) {
  expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_(), c = torch::randn({4, 8});
    auto a = (x + c).sin();
    {
      const torch::NoGradGuard no_grad;
      c.set_(torch::randn({4, 8}));
    }
    auto b = (x + c).sin();
    (a * b * c).sum().backward();
    return gradients({x});
  });
}

TEST(Modification, ByResize) {
  expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_(), c = torch::randn({4, 8});
    auto a = (x + c).sin();
    c.resize_({8, 16}).fill_(0.5);
    auto b = (x.sum() + c).sin();
    (a.sum() * b.sum()).backward();
    return gradients({x});
  });
}

TEST(Modification, BySwappedContents) {
  // Two buffers change places, as double-buffered caches do.
  expect_exact_or_refused([] {
    auto x = torch::randn({4, 8}).requires_grad_(), a = torch::randn({4, 8}), b = torch::randn({4, 8});
    auto first = ((x + a).sin() * b).exp();
    auto t = a.clone();
    a.copy_(b);
    b.copy_(t);
    auto second = ((x + a).sin() * b).exp();
    (first * second).sum().backward();
    return gradients({x});
  });
}

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

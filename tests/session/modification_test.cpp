// Tensors that change between forward and backward: where plain throws remat throws; where plain does not, remat is
// exact or refuses and says which operator.
#include "modification.h"

#include <optional>

namespace remat::test {
namespace {

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

TEST(Modification, BySetDataOfATensorAtTheAddressOfASavedOne) {
  // relu() saves its result through a tensor that is freed at once; the next one made may have its address.
  expect_exact([] {
    auto x = torch::randn({4, 8}).requires_grad_();
    auto y = x;
    for (int i = 0; i < 32; ++i) {
      y = (y * 1.5).relu();
      for (int k = 0; k < 8; ++k) y.cos().set_data(torch::ones({4, 8}));
    }
    y.sum().backward();
    return gradients({x});
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

}  // namespace
}  // namespace remat::test

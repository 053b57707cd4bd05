// Switches of PyTorch that change bits and differ between forward and backward: a replay runs under those of the
// recorded call, and the user's are in force again after it.
#include <cfenv>

#include <ATen/Parallel.h>
#include <dlfcn.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "support/compare.h"
#include "support/expect_error.h"

namespace remat::test {
namespace {

/// Runs forward under `on`, backward after `off`.
Outcome train(const std::function<at::Tensor(const at::Tensor&)>& forward, const std::function<void()>& on,
              const std::function<void()>& off) {
  Outcome outcome;
  const auto x = torch::randn({16, 3, 64, 64}).requires_grad_();
  on();
  auto y = forward(x);
  off();
  const auto loss = y.square().mean();
  y = at::Tensor();
  loss.backward();
  outcome.add("loss", loss);
  outcome.add("gradient", x.grad());
  return outcome;
}

TEST(Settings, OneDnn) {
  const auto weight = torch::randn({16, 3, 3, 3});
  expect_exact([&] {
    return train([&](const at::Tensor& x) { return torch::conv2d(x, weight).tanh(); },
                 [] { at::globalContext().setUserEnabledMkldnn(false); },
                 [] { at::globalContext().setUserEnabledMkldnn(true); });
  });
  EXPECT_TRUE(at::globalContext().userEnabledMkldnn());
}

TEST(Settings, Threads) {
  const int before = at::get_num_threads();
  expect_exact([&] {
    return train([](const at::Tensor& x) { return x.mul(1.5).sum().sin().exp() * x.sin().exp(); },
                 [] { at::set_num_threads(7); }, [&] { at::set_num_threads(before); });
  });
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(Settings, Denormals) {
  expect_exact([] {
    return train([](const at::Tensor& x) { return ((x * 1e-39).mul(0.7) * 1e38).sin().exp(); },
                 [] { at::Context::setFlushDenormal(true); }, [] { at::Context::setFlushDenormal(false); });
  });
}

TEST(Settings, Rounding) {
  expect_exact([] {
    return train([](const at::Tensor& x) { return (x * 1.7).div(3).sin().exp(); }, [] { std::fesetround(FE_UPWARD); },
                 [] { std::fesetround(FE_TONEAREST); });
  });
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
}

#if defined(__SSE__)
/// As C code does it by _MM_SET_ROUNDING_MODE and its like: one bit, and in the unit for vectors alone.
TEST(Settings, ModesOfTheVectorUnit) {
  constexpr unsigned kUsual = 0x1f80;
  for (const unsigned mode : {0x8000U, 0x0040U, 0x4000U}) {  // flush to zero, denormals are zero, upwards
    for (const bool in_forward : {true, false}) {
      expect_exact([&] {
        auto outcome = train([](const at::Tensor& x) { return ((x.sin() * 1e-39).mul(0.7) * 1e38).div(3).sin().exp(); },
                             [&] { _mm_setcsr(in_forward ? kUsual | mode : kUsual); },
                             [&] { _mm_setcsr(in_forward ? kUsual : kUsual | mode); });
        const auto after = static_cast<int64_t>(_mm_getcsr() & 0xffc0);
        _mm_setcsr(kUsual);
        outcome.add("mode after backward", torch::tensor(after));
        return outcome;
      });
    }
  }
}
#endif

/// MKL has a number of threads of its own, which other libraries change without PyTorch's, or the other way round.
TEST(Settings, ThreadsOfOpenMpAlone) {
  Dl_info torch_library;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&at::get_num_threads), &torch_library), 0);
  void* const library = dlopen(torch_library.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  const auto set_openmp = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
  const auto mkl_threads = reinterpret_cast<int (*)()>(dlsym(library, "MKL_Get_Max_Threads"));
  if (set_openmp == nullptr || mkl_threads == nullptr) GTEST_SKIP() << "this LibTorch has no OpenMP or no MKL";
  const int before = at::get_num_threads();
  const auto a = torch::randn({3, 4096}), b = torch::randn({4096, 130});
  for (const auto& [forward, backward] : {std::pair{5, 2}, {2, 5}}) {
    expect_exact([&, forward = forward, backward = backward] {
      at::set_num_threads(2);
      Outcome outcome;
      const auto x = a.clone().requires_grad_(), y = b.clone().requires_grad_();
      set_openmp(forward);
      auto loss = (x.sigmoid().mm(y.sin()).sin() * 1.5).sum();
      set_openmp(backward);
      loss.backward();
      outcome.add("gradients", torch::cat({x.grad().flatten(), y.grad().flatten()}));
      outcome.add("threads", torch::tensor(mkl_threads()));
      return outcome;
    });
  }
  at::set_num_threads(before);
}

/// By the load of the machine, which nobody knows afterwards.
TEST(Settings, FewerThreadsThanAskedForAreRefused) {
  Dl_info torch_library;
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&at::get_num_threads), &torch_library), 0);
  void* const library = dlopen(torch_library.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  const auto set_dynamic = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_dynamic"));
  if (set_dynamic == nullptr) GTEST_SKIP() << "this LibTorch has no OpenMP";
  Session session;
  set_dynamic(1);
  EXPECT_ERROR(session.step(), "OMP_DYNAMIC");
  EXPECT_ERROR(PolicyScope(Policy::drop_all()), "OMP_DYNAMIC");
  set_dynamic(0);
  Step step = session.step();
  (torch::ones({3}).requires_grad_() * 2).sum().backward();
  step.end();
}

TEST(Settings, ProductPrecision) {
  const auto weight = torch::randn({256, 64});
  expect_exact([&] {
    return train([&](const at::Tensor& x) { return x.flatten(0, 2).mm(weight.t()).tanh(); },
                 [] { at::globalContext().setFloat32MatmulPrecision("medium"); },
                 [] { at::globalContext().setFloat32MatmulPrecision("highest"); });
  });
}

TEST(Settings, AreTheUsersAgainWhereAReplayFails) {
  const int before = at::get_num_threads();
  at::Tensor loss;
  auto other = torch::ones({64});
  {
    const PolicyScope scope(Policy::drop_all());
    const auto x = torch::randn({64}).requires_grad_();
    at::set_num_threads(before + 3);
    loss = (x * other).exp().sum();
    at::set_num_threads(before);
  }
  other.data().fill_(2);  // what a replay would read
  try {
    loss.backward();
  } catch (const Error&) {  // NOLINT: either is right
  }
  EXPECT_EQ(at::get_num_threads(), before);
}

}  // namespace
}  // namespace remat::test

// Kernels of users: at autograd's keys, of PyTorch's own operators, behind modes, and with locks.
#include <mutex>
#include <optional>

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "support/compare.h"
#include "support/expect_error.h"
#include "support/kernels.h"

namespace remat::test {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

at::Tensor call_own(const std::string& name, const at::Tensor& x) { return call("remat_own::" + name, x); }

/// Prepares the input of the kernel below it.
struct Prepared : Function<Prepared> {
  static at::Tensor forward(AutogradContext* /*context*/, const at::Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_own("prepared", x / 2);
  }
  static tensor_list backward(AutogradContext* /*context*/, const tensor_list& gradients) { return gradients; }
};
/// Computes something else than the kernel below it, by pointers.
struct Apart : Function<Apart> {
  static at::Tensor forward(AutogradContext* /*context*/, const at::Tensor& x) { return times(x, 3); }
  static tensor_list backward(AutogradContext* /*context*/, const tensor_list& gradients) { return gradients; }
};
struct Relu : Function<Relu> {
  static at::Tensor forward(AutogradContext* /*context*/, const at::Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return at::relu(x);
  }
  static tensor_list backward(AutogradContext* /*context*/, const tensor_list& gradients) { return gradients; }
};

TORCH_LIBRARY(remat_own, m) {
  for (const char* name : {"prepared", "apart", "without_cpu", "differentiates", "plain"}) {
    m.def((std::string(name) + "(Tensor x) -> Tensor").c_str());
  }
}
TORCH_LIBRARY_IMPL(remat_own, Autograd, m) {
  m.impl("prepared", [](const at::Tensor& x) { return Prepared::apply(x); });
  m.impl("apart", [](const at::Tensor& x) { return Apart::apply(x); });
  m.impl("without_cpu", [](const at::Tensor& x) { return Apart::apply(x); });
}
TORCH_LIBRARY_IMPL(remat_own, CPU, m) {
  m.impl("prepared", [](const at::Tensor& x) -> at::Tensor { return x * 2 + 1; });
  m.impl("apart", [](const at::Tensor& x) -> at::Tensor { return times(x, 2); });
  m.impl("plain", [](const at::Tensor& x) -> at::Tensor { return x.clone(); });
  m.impl("differentiates", [](const at::Tensor& x) -> at::Tensor {
    const at::AutoGradMode enabled(true);
    const auto z = x.detach().clone().requires_grad_();
    return torch::autograd::grad({z.tanh().square().sum()}, {z})[0];
  });
}

/// Layers with `activation` between products, some of which are dropped.
Program layers(const std::function<at::Tensor(const at::Tensor&)>& activation) {
  return [=] {
    Outcome outcome;
    const auto w = torch::randn({32, 32}).div_(4).requires_grad_();
    auto h = torch::randn({32, 32});
    for (int i = 0; i < 4; ++i) h = activation(h.mm(w)).tanh();
    h.sum().backward();
    outcome.add("loss", h);
    outcome.add("gradient", w.grad());
    outcome.add_generator();
    return outcome;
  };
}

void expect_dropped_and_exact(const Program& program) {
  expect_exact(program);
  Session session;
  auto step = session.step();
  const PolicyScope scope(Policy::drop_all());
  run_seeded(program);
  EXPECT_GT(step.end().values_dropped, 0);
}

class OwnAutogradKernel : public testing::TestWithParam<const char*> {};
TEST_P(OwnAutogradKernel, IsWhatReplaysCall) {
  expect_dropped_and_exact(layers([](const at::Tensor& x) { return call_own(GetParam(), x); }));
}
INSTANTIATE_TEST_SUITE_P(Kernels, OwnAutogradKernel, testing::Values("prepared", "apart", "without_cpu"));

TEST(OwnKernels, OfAnOperatorOfPyTorch) {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__);
  library.impl("hardsigmoid", [](const at::Tensor& x) -> at::Tensor { return Relu::apply(x); });
  expect_dropped_and_exact(layers([](const at::Tensor& x) { return at::hardsigmoid(x); }));
}

/// Has the result of `Call` saved by autograd alone, and reads it below autograd where `Guarded`.
template <at::Tensor Call(const at::Tensor&), bool Guarded>
struct Saves : Function<Saves<Call, Guarded>> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const auto y = Call(x.detach());
    context->save_for_backward({y});
    return y.clone();
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    std::optional<at::AutoDispatchBelowADInplaceOrView> below;
    if (Guarded) below.emplace();
    const auto y = context->get_saved_variables()[0];
    below.reset();
    return {gradients[0] * y};
  }
};
at::Tensor apart(const at::Tensor& x) { return call_own("apart", x); }
at::Tensor apart_below_autograd(const at::Tensor& x) {
  const at::AutoDispatchBelowAutograd below;
  return call_own("apart", x);
}

TEST(OwnKernels, AreCalledWhereTheyWereCalled) {
  expect_dropped_and_exact(layers([](const at::Tensor& x) { return Saves<apart_below_autograd, false>::apply(x); }));
  expect_dropped_and_exact(layers([](const at::Tensor& x) { return Saves<apart_below_autograd, true>::apply(x); }));
  expect_dropped_and_exact(layers([](const at::Tensor& x) { return Saves<apart, true>::apply(x); }));
}

at::Tensor hardsigmoid(const at::Tensor& x) { return at::hardsigmoid(x); }

TEST(OwnKernels, ForAutocast) {
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastCPU, __FILE__, __LINE__);
  library.impl("hardsigmoid", [](const at::Tensor& x) -> at::Tensor {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const at::AutoDispatchBelowADInplaceOrView below;
    return at::relu(x);
  });
  const auto program = layers([](const at::Tensor& x) { return Saves<hardsigmoid, false>::apply(x); });
  expect_dropped_and_exact(program);
  expect_dropped_and_exact([&] {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    auto outcome = program();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    return outcome;
  });
}

TEST(OwnKernels, ThatWriteToWhatADictHolds) {
  torch::Library library(torch::Library::DEF, "remat_dict", std::nullopt, __FILE__, __LINE__);
  library.def("halve(Dict(str, Tensor) x) -> ()");
  library.impl("halve",
               torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, [](c10::Dict<std::string, at::Tensor> x) {
                 auto* const data = x.at("a").data_ptr<float>();
                 for (int64_t i = 0; i < x.at("a").numel(); ++i) data[i] /= 2;
               }));
  const auto halve = c10::Dispatcher::singleton().findSchemaOrThrow("remat_dict::halve", "");
  expect_dropped_and_exact(layers([&](const at::Tensor& x) {
    const auto y = x.exp();
    c10::Dict<std::string, at::Tensor> named;
    named.insert("a", y.detach());
    torch::jit::Stack stack{named};
    halve.callBoxed(stack);
    return y.sin();
  }));
}

TEST(OwnKernels, RegisteredAfterTheOperatorWasSeen) {
  const auto program = layers([](const at::Tensor& x) { return at::hardswish(x); });
  expect_dropped_and_exact(program);
  {
    torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    library.impl("hardswish", [](const at::Tensor& x) -> at::Tensor { return x.clamp(-1, 2) * 0.5; });
    expect_dropped_and_exact(program);
  }
  expect_dropped_and_exact(program);
}

TEST(OwnKernels, RegisteredBetweenForwardAndBackwardAreNotThoseOfReplays) {
  expect_dropped_and_exact([] {
    Outcome outcome;
    const auto w = torch::randn({32, 32}).div_(4).requires_grad_();
    auto h = torch::randn({32, 32});
    for (int i = 0; i < 4; ++i) h = at::hardswish(h.mm(w)).tanh();
    auto loss = h.sum();
    h = at::Tensor();
    torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    library.impl("hardswish", [](const at::Tensor& x) -> at::Tensor { return x.clamp(-1, 2) * 0.5; });
    loss.backward();
    outcome.add("loss", loss);
    outcome.add("gradient", w.grad());
    return outcome;
  });
}

TEST(OwnKernels, OfAnOperatorThatWasRemovedAreNotCalled) {
  const auto x = torch::randn({32, 32}).requires_grad_();
  Session session;
  auto step = session.step();
  const PolicyScope scope(Policy::drop_all());
  at::Tensor loss;
  {
    torch::Library library(torch::Library::DEF, "remat_removed", std::nullopt, __FILE__, __LINE__);
    library.def("twice(Tensor x) -> Tensor");
    library.impl("twice",
                 torch::dispatch(c10::DispatchKey::CPU, [](const at::Tensor& t) -> at::Tensor { return times(t, 2); }));
    loss = (x * call("remat_removed::twice", x.detach())).sum();
  }
  EXPECT_ERROR(loss.backward(), "remat_removed::twice cannot be repeated: since the forward pass ran it");
}

TEST(OwnKernels, MayDifferentiate) {
  expect_exact(layers([](const at::Tensor& x) { return call_own("differentiates", x.detach()) * x; }));
}

/// Rounds what products read.
void round_inputs(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  constexpr auto kMode = c10::DispatchKey::TESTING_ONLY_GenericMode;
  const c10::impl::ExcludeDispatchKeyGuard below(kMode);
  if (handle.schema().name() == "aten::mm") {
    for (size_t i = 1; i <= 2; ++i) {
      auto& input = (*stack)[stack->size() - i];
      input = input.toTensor().to(at::kBFloat16).to(at::kFloat);
    }
  }
  handle.redispatchBoxed(keys.remove(kMode), stack);
}

TEST(OwnKernels, OfAModeRunOnce) {
  torch::Library library(torch::Library::IMPL, "_", c10::DispatchKey::TESTING_ONLY_GenericMode, __FILE__, __LINE__);
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&round_inputs>());
  expect_exact([] {
    Outcome outcome;
    const auto w = torch::randn({32, 32}).div_(4).requires_grad_();
    auto h = torch::randn({32, 32});
    {
      const c10::impl::IncludeDispatchKeyGuard mode(c10::DispatchKey::TESTING_ONLY_GenericMode);
      for (int i = 0; i < 4; ++i) h = h.mm(w).tanh();
    }
    h.sum().backward();
    outcome.add("gradient", w.grad());
    return outcome;
  });
}

// As PyTorch tells those who draw from a generator more than once.
TEST(OwnKernels, CalledUnderTheGeneratorsMutex) {
  auto generator = at::detail::getDefaultCPUGenerator();
  expect_exact(layers([&](const at::Tensor& x) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    return call_own("plain", x.detach()) * x;
  }));
}

}  // namespace
}  // namespace remat::test

// Checksums on the simulated device: contents that differ are told apart when a step is over, without waiting before.
#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include <remat/remat.h>

#include "device/device_fixture.h"
#include "tape/deferred_checksums.h"

namespace remat::simulated {
namespace {

using DeviceChecksums = DeviceSessionTest;

torch::Tensor numbers(int64_t count, at::ScalarType type = at::kFloat) {
  return torch::arange(count).mul(0.7).sin().add(0.1).mul(100).to(type);
}

ByteRange whole(const torch::Tensor& tensor) { return {0, static_cast<int64_t>(tensor.storage().nbytes())}; }

/// Does a change of what is in `contents` show?
bool shows(const torch::Tensor& contents, const std::function<void(torch::Tensor)>& change, bool sample = false) {
  const torch::Tensor on_device = contents.to(device());
  const c10::StorageImpl& storage = *storage_of(on_device);
  DeferredChecksums checksums;
  const uint64_t before = checksums.take(storage, whole(on_device), sample);
  EXPECT_TRUE(DeferredChecksums::is_deferred(before));
  EXPECT_TRUE(checksums.expect(before, storage, whole(on_device), "as it was"));
  const torch::Tensor changed = contents.clone();
  change(changed);
  on_device.copy_(changed);
  EXPECT_TRUE(checksums.expect(before, storage, whole(on_device), "changed"));
  try {
    checksums.resolve(/*completed=*/true);
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "changed");
    return true;
  }
  return false;
}

TEST_F(DeviceChecksums, ShowEveryChange) {
  for (const int64_t count : {1, 2, 3, 7, 8, 63, 512, 513, 4097, 100'003, 1 << 18}) {
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kByte}) {
      const auto contents = numbers(count, type);
      const auto what = std::to_string(count) + " of " + c10::toString(type);
      EXPECT_FALSE(shows(contents, [](const torch::Tensor& t) { t.add_(0); })) << what;
      for (const int64_t place : {int64_t{0}, count / 2, count - 1}) {
        EXPECT_TRUE(shows(contents, [&](torch::Tensor t) { t[place] += 1; })) << what << ", " << place;
      }
      if (type != at::kByte) {
        EXPECT_TRUE(shows(contents, [&](torch::Tensor t) { t[count - 1] *= -1; })) << what << ", one sign";
        EXPECT_TRUE(shows(contents, [](const torch::Tensor& t) { t.neg_(); })) << what << ", all signs";
      }
      if (count < 3) continue;
      EXPECT_TRUE(shows(contents, [](const torch::Tensor& t) { t.copy_(t.roll(1)); })) << what << ", another order";
      EXPECT_TRUE(shows(contents,
                        [&](torch::Tensor t) {
                          const auto first = t[0].clone();
                          t[0] = t[count - 1];
                          t[count - 1] = first;
                        }))
          << what << ", two exchanged";
    }
  }
}

TEST_F(DeviceChecksums, OfASampleShowOtherContents) {
  for (const int64_t count : {1 << 14, 1 << 16, 1'000'003}) {
    const auto contents = numbers(count);
    EXPECT_FALSE(shows(
        contents, [](const torch::Tensor& t) { t.add_(0); }, /*sample=*/true));
    EXPECT_TRUE(shows(
        contents, [](const torch::Tensor& t) { t.mul_(0.9); }, /*sample=*/true));
    EXPECT_TRUE(shows(
        contents, [](torch::Tensor t) { t[0] += 1; }, /*sample=*/true));
  }
}

TEST_F(DeviceChecksums, DoNotWait) {
  const auto contents = numbers(1 << 10).to(device());
  synchronize_device(0);
  set_delay(20'000);  // microseconds of each kernel
  const auto begin = std::chrono::steady_clock::now();
  DeferredChecksums checksums;
  const uint64_t before = checksums.take(*storage_of(contents), whole(contents));
  EXPECT_TRUE(checksums.expect(before, *storage_of(contents), whole(contents), "other"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(60)) << "of more than ten kernels";
  set_delay(0);
  EXPECT_NO_THROW(checksums.resolve(/*completed=*/true));
}

TEST_F(DeviceChecksums, LeaveNothingBehind) {
  const auto contents = numbers(1 << 16).to(device());
  const int64_t before = memory::current(device());
  {
    DeferredChecksums checksums;
    for (int i = 0; i < 200; ++i) EXPECT_NE(checksums.take(*storage_of(contents), whole(contents)), 0);
    EXPECT_EQ(memory::current(device()) - before, checksums.bytes());
    EXPECT_LT(checksums.bytes(), 16 * 1024);
  }
  EXPECT_EQ(memory::current(device()), before);
}

/// `change` comes between the passes of a step whose backward reads `x` and `weight` again. What plain gives, or its
/// error.
struct Outcome {
  torch::Tensor gradient;
  std::string error;
};

Outcome step_with(bool planned, const std::function<void(torch::Tensor& x, torch::Tensor& weight)>& change,
                  int steps = 1) {
  Session session({.device = device()});
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    torch::Tensor x = numbers(1 << 10).to(device()), weight = numbers(1 << 10).to(device()).requires_grad_();
    std::optional<Step> step;
    if (planned) step.emplace(session.step());
    {
      std::optional<PolicyScope> drop;
      if (planned) drop.emplace(Policy::drop_all());
      auto y = x.sin() * weight.cos();
      auto loss = (y * y).sum();
      drop.reset();
      y.reset();
      change(x, weight);
      loss.backward();
    }
    try {
      if (planned) step->end();
    } catch (const Error& e) {
      outcome.error = e.what();
    }
    outcome.gradient = weight.grad().cpu();
  }
  return outcome;
}

void fill_through_pointer(const torch::Tensor& tensor, double value) {
  torch::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.options().requires_grad(false)).fill_(value);
}

TEST_F(DeviceChecksums, AnInputThatWasWrittenToThroughAPointerIsToldAtTheEnd) {
  const auto write = [](torch::Tensor& x, torch::Tensor&) { fill_through_pointer(x, 2); };
  const std::string error = step_with(/*planned=*/true, write).error;
  EXPECT_NE(error.find("modified in place after the forward pass read it"), std::string::npos) << error;
  EXPECT_EQ(step_with(/*planned=*/true, [](torch::Tensor&, torch::Tensor&) {}).error, "");
}

/// As FSDP2 does with the storages of its parameters.
void empty_and_fill(torch::Tensor& weight, double factor) {
  const torch::Tensor contents = weight.detach().clone() * factor;
  const auto storage = weight.storage().unsafeGetStorageImpl();
  const size_t bytes = storage->nbytes();
  const auto resize = [&](size_t size) {
    storage->set_data_ptr_noswap(storage->allocator()->allocate(size));
    storage->set_nbytes(size);
  };
  resize(0);
  const torch::Tensor other = torch::empty({1 << 10}, weight.options().requires_grad(false));  // has its memory
  resize(bytes);
  torch::from_blob(weight.data_ptr(), weight.sizes(), weight.options().requires_grad(false)).copy_(contents);
}

TEST_F(DeviceChecksums, AParameterThatWasEmptiedIsReadWhereItHasTheSameContentsAgain) {
  const auto same = [](torch::Tensor&, torch::Tensor& weight) { empty_and_fill(weight, 1); };
  const Outcome plain = step_with(/*planned=*/false, same);
  for (const int steps : {1, 3}) {
    const Outcome ours = step_with(/*planned=*/true, same, steps);
    EXPECT_EQ(ours.error, "");
    EXPECT_TRUE(torch::equal(ours.gradient, plain.gradient));
  }
  const Outcome other =
      step_with(/*planned=*/true, [](torch::Tensor&, torch::Tensor& weight) { empty_and_fill(weight, 2); });
  EXPECT_NE(other.error.find("was emptied after the forward pass read it"), std::string::npos) << other.error;
}

/// Gives other bits at each call, and says nothing of it.
at::Tensor drift(const at::Tensor& x) {
  static std::atomic<int> calls = 0;
  const at::DisableRecordFunctionGuard unseen;  // a kernel of its own
  return x.cos().add_(++calls);
}

TEST_F(DeviceChecksums, OfFirstReplaysShowOperatorsThatDoNotRepeat) {
  torch::Library library(torch::Library::FRAGMENT, "remat_test_checksums", std::nullopt, __FILE__, __LINE__);
  library.def("drift(Tensor x) -> Tensor");
  library.impl("drift", torch::dispatch(c10::DispatchKey::PrivateUse1, &drift));
  const auto call = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("remat_test_checksums::drift", "")
                        .typed<at::Tensor(const at::Tensor&)>();
  const auto x = numbers(1 << 10).to(device());
  auto weight = numbers(1 << 10).to(device()).requires_grad_();
  Session session({.device = device()});
  std::vector<std::string> errors;
  for (int i = 0; i < 3; ++i) {
    Step step = session.step();
    at::Tensor loss;
    {
      const PolicyScope drop(Policy::drop_all());
      loss = (call.call(x) * weight).sum();
    }
    loss.backward();
    errors.emplace_back();
    try {
      EXPECT_EQ(step.end().values_dropped, i == 0 ? 1 : 0);
    } catch (const Error& e) {
      errors.back() = e.what();
    }
  }
  EXPECT_NE(errors[0].find("remat_test_checksums::drift gave other bits than before"), std::string::npos) << errors[0];
  EXPECT_EQ(errors[1] + errors[2], "") << "its results are held";
}

TEST_F(DeviceChecksums, AreNotTakenOfOperatorsThatHaveRepeated) {
  auto x = numbers(1 << 10).to(device()).requires_grad_();
  auto weight = numbers(1 << 10).to(device()).requires_grad_();
  Session session({.device = device()});
  std::vector<int64_t> peaks;
  for (int i = 0; i < 6; ++i) {
    Step step = session.step();
    at::Tensor loss;
    {
      const PolicyScope drop(Policy::drop_all());
      loss = torch::erfc(weight * x).mul(weight).sum();
    }
    loss.backward();
    const StepReport report = step.end();
    EXPECT_GT(report.operators_replayed, 0);
    for (const auto& each : {x, weight}) each.mutable_grad().reset();
    peaks.push_back(report.peak_bytes - report.baseline_bytes);
  }
  EXPECT_LT(peaks[5], peaks[1]);  // the first takes those of parameters too
}

}  // namespace
}  // namespace remat::simulated

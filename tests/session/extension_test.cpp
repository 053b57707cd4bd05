// What bindings of other languages tell the engine, through the public header.
#include <remat/extension.h>

#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <remat/memory.h>
#include <remat/policy.h>
#include <remat/session.h>
#include <torch/torch.h>

#include "support/compare.h"

namespace remat::test {
namespace {

TEST(Extension, SaysWhetherAnythingIsRecorded) {
  EXPECT_FALSE(extension::is_recording());
  EXPECT_FALSE(extension::is_watching_operators());
  const auto x = torch::ones({4}).requires_grad_();
  at::Tensor saved;
  {
    Session session;
    auto step = session.step();
    EXPECT_TRUE(extension::is_recording());
    EXPECT_TRUE(extension::is_watching_operators());
    saved = x.sin().exp();
  }
  EXPECT_FALSE(extension::is_recording());
  EXPECT_TRUE(extension::is_anything_recorded()) << "a backward pass may still come";
  saved = at::Tensor();
  EXPECT_FALSE(extension::is_anything_recorded());
}

// The kernel that writes has no operator: a replay of the operators around it must not take the old contents.
TEST(Extension, AnnouncedWritesOfAKernelWithoutOperatorsAreSeen) {
  const auto run = [](bool announce) {
    const auto x = torch::ones({64}).requires_grad_();
    auto table = torch::full({64}, 2.0F);
    std::optional<PolicyScope> drop;
    if (announce) drop.emplace(Policy::drop_all());
    const at::Tensor product = (x * table).sin();
    if (announce) extension::announce_write(table);
    table.data_ptr<float>()[0] = 5;
    const at::Tensor other = (x * table).cos();
    const at::Tensor sum = product.exp().sum() + other.sum();
    drop.reset();
    sum.backward();
    Outcome outcome;
    outcome.add("x", x.grad());
    return outcome;
  };
  // Plain: autograd's saved table would see the write, so both give the gradient of the new contents.
  const Outcome plain = run(false);
  Session session;
  auto step = session.step();
  const Outcome outcome = run(true);
  EXPECT_GT(step.end().operators_replayed, 0);
  expect_same_bits(plain, outcome, "announced write");
}

TEST(Extension, NothingIsRecordedInAnOpaqueRegion) {
  const auto operators = [](bool opaque) {
    Session session;
    const auto x = torch::ones({64}).requires_grad_();
    auto step = session.step();
    std::optional<extension::OpaqueRegion> region;
    if (opaque) region.emplace();
    const at::Tensor inside = x.sin();
    if (opaque) region->end();
    region.reset();  // has ended, and ends nothing more
    inside.exp().sum().backward();
    return step.end().operators_recorded;
  };
  EXPECT_EQ(operators(true), operators(false) - 1);
}

// What compiled code does not do, and outside of a region would be an error.
TEST(Extension, WritesThroughPointersInACompiledRegionAreNotLookedFor) {
  const auto step_of = [](bool compiled) {
    Session session;
    const auto x = torch::ones({64}).requires_grad_();
    auto step = session.step();
    std::optional<PolicyScope> drop(Policy::drop_all());
    std::optional<extension::CompiledRegion> region;
    if (compiled) region.emplace();
    at::Tensor table = torch::linspace(0, 1, 64).sin();
    table.data_ptr<float>()[3] = 7;
    const at::Tensor product = (x + table).sin();
    if (compiled) region->end();
    region.reset();  // has ended, and ends nothing more
    table = at::Tensor();
    drop.reset();
    product.sum().backward();
  };
  EXPECT_NO_THROW(step_of(true));
  EXPECT_THROW(step_of(false), Error);
}

TEST(Extension, WritesThroughPointersToResultsOfACompiledRegionAreSeen) {
  Session session;
  const auto x = torch::ones({64}).requires_grad_();
  auto step = session.step();
  std::optional<PolicyScope> drop(Policy::drop_all());
  at::Tensor table;
  {
    const extension::CompiledRegion region;
    table = torch::linspace(0, 1, 64).sin();
  }
  table.data_ptr<float>()[3] = 7;
  const at::Tensor product = (x + table).sin();
  table = at::Tensor();
  drop.reset();
  EXPECT_THROW(product.sum().backward(), Error);
}

TEST(Extension, CountsForeignMemoryOnce) {
  memory::start_accounting();
  std::vector<float> foreign(1024);
  const int64_t before = memory::current();
  {
    const at::Tensor tensor = torch::from_blob(foreign.data(), {1024});
    extension::count_memory(tensor);
    extension::count_memory(*tensor.storage().unsafeGetStorageImpl());
    EXPECT_EQ(memory::current() - before, 4096);
  }
  EXPECT_EQ(memory::current(), before);
}

}  // namespace
}  // namespace remat::test

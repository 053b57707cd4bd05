#include "memory/thread_bytes.h"

#include <thread>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/memory.h>

namespace remat::test {
namespace {

constexpr int64_t kBytes = 1000;

at::Tensor some() { return torch::empty({kBytes}, at::kByte); }

TEST(ThreadBytes, CountWhatTheThreadAllocatesAndFrees) {
  memory::start_accounting();
  const auto bytes = memory::ThreadBytes::of_this_thread();
  const int64_t before = bytes->count();
  at::Tensor tensor = some();
  EXPECT_EQ(bytes->count(), before + kBytes);
  at::Tensor others;
  std::thread([&] { others = some(); }).join();
  EXPECT_EQ(bytes->count(), before + kBytes);
  tensor.reset();
  others.reset();
  EXPECT_EQ(bytes->count(), before - kBytes) << "what another thread had made was freed here";
}

TEST(ThreadBytes, AreOfEachThreadItsOwn) {
  memory::start_accounting();
  const auto ours = memory::ThreadBytes::of_this_thread();
  EXPECT_EQ(memory::ThreadBytes::of_this_thread(), ours);
  EXPECT_EQ(memory::ThreadBytes::of_this_thread_if_asked(), ours.get());
  std::shared_ptr<const memory::ThreadBytes> theirs;
  at::Tensor tensor;
  std::thread([&] {
    EXPECT_EQ(memory::ThreadBytes::of_this_thread_if_asked(), nullptr);
    tensor = some();
    theirs = memory::ThreadBytes::of_this_thread();
    tensor = some();
  }).join();
  EXPECT_NE(theirs, ours);
  EXPECT_EQ(theirs->count(), 0) << "counted from the first call on, one made and one freed, and kept beyond its thread";
}

}  // namespace
}  // namespace remat::test

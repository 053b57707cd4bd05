// Tensors whose memory is a mapped file's.
#include <remat/file_memory.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <remat/memory.h>
#include <remat/session.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"

namespace remat::test {
namespace {

/// Of this process: the lines of a file of /proc that hold `text`.
std::vector<std::string> lines_with(const std::string& file, const std::string& text) {
  std::vector<std::string> lines;
  std::ifstream from("/proc/self/" + file);
  for (std::string line; std::getline(from, line);) {
    if (line.find(text) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

/// Bytes of mapped files that are in memory for this process.
int64_t resident_file_bytes() {
  int64_t kilobytes = 0;
  for (const char* name : {"RssFile:", "RssShmem:"}) {
    kilobytes += std::stoll(lines_with("status", name).at(0).substr(std::string(name).size()));
  }
  return kilobytes * 1024;
}

class FileMemoryTest : public ::testing::Test {
 protected:
  FileMemoryTest() { memory::start_accounting(); }

  at::Tensor in_file(const at::Tensor& like) const {
    const FileMemory memory(directory_.path(""));
    return like.clone();
  }
  size_t mapped_files() const { return lines_with("maps", directory_.path("")).size(); }

  TemporaryDirectory directory_;
};

TEST_F(FileMemoryTest, LargeTensorsAreInFilesAndNotCounted) {
  const int64_t before = memory::current();
  std::optional<FileMemory> memory(directory_.path(""));
  at::Tensor large = at::zeros({1 << 14}), small = at::zeros({(1 << 14) - 1}), elsewhere;
  std::thread([&] { elsewhere = at::zeros({1 << 14}); }).join();
  memory.reset();
  const at::Tensor later = at::zeros({1 << 14});
  EXPECT_TRUE(FileMemory::holds(large));
  EXPECT_FALSE(FileMemory::holds(small));
  EXPECT_FALSE(FileMemory::holds(elsewhere));
  EXPECT_FALSE(FileMemory::holds(later));
  EXPECT_FALSE(FileMemory::holds({}));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(large.const_data_ptr()) % 64, 0U);
  EXPECT_LT(memory::current() - before, 3 * ((4 << 14) + 4096));
  EXPECT_EQ(mapped_files(), 1U);
  large.resize_({1 << 16}).fill_(3);  // grows in memory
  EXPECT_FALSE(FileMemory::holds(large));
  EXPECT_EQ(mapped_files(), 0U);
}

// The step reads weights of a file, and has plain's bits; the budget has no room for them.
TEST_F(FileMemoryTest, AStepComputesTheSameAndItsBudgetDoesNotCountThem) {
  torch::manual_seed(3);
  const at::Tensor weight = torch::randn({600, 600}), x = torch::randn({16, 600});
  const at::Tensor frozen = in_file(weight);
  const auto gradient = [&](const at::Tensor& by) {
    const at::Tensor factor = x.clone().requires_grad_();
    at::linear(at::gelu(at::linear(factor, by)), by).square().sum().backward();
    return factor.grad();
  };
  const at::Tensor expected = gradient(weight);
  const int64_t room = memory::current() + 500'000;
  ASSERT_LT(500'000, static_cast<int64_t>(frozen.nbytes()));
  Session session({.budget = Budget::bytes(room), .planner = "online"});
  auto step = session.step();
  const at::Tensor computed = gradient(frozen);
  step.end();
  EXPECT_TRUE(computed.equal(expected));
  EXPECT_LE(session.report().peak_bytes, room);
}

TEST_F(FileMemoryTest, WhatIsSettledLeavesMemoryAndComesBack) {
  const at::Tensor contents = torch::arange(4 << 20);
  const int64_t before = resident_file_bytes();
  const at::Tensor frozen = in_file(contents);
  EXPECT_GE(resident_file_bytes() - before, static_cast<int64_t>(frozen.nbytes()));
  FileMemory::settle({frozen, contents, {}});
  EXPECT_LT(resident_file_bytes() - before, 1 << 20);
  EXPECT_TRUE(frozen.equal(contents));
}

TEST_F(FileMemoryTest, WhereThereIsNoRoomAllocationsFail) {
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit little{1 << 20, before.rlim_max};  // stands in for a full disk
  setrlimit(RLIMIT_FSIZE, &little);
  {
    const FileMemory memory(directory_.path(""));
    EXPECT_ERROR(at::empty({1 << 20}), "[file memory] a tensor of 4.00 MiB (4194304 bytes) has no place in \"");
    EXPECT_TRUE(FileMemory::holds(at::empty({1 << 17})));
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(mapped_files(), 0U);
}

TEST_F(FileMemoryTest, MayEndOnAnotherThread) {
  auto memory = std::make_unique<FileMemory>(directory_.path(""));
  std::thread([&] {
    const FileMemory own(directory_.path(""));
    memory.reset();
    EXPECT_TRUE(FileMemory::holds(at::zeros({1 << 14})));
  }).join();
  EXPECT_FALSE(FileMemory::holds(at::zeros({1 << 14})));
  const FileMemory next(directory_.path(""));
  EXPECT_TRUE(FileMemory::holds(at::zeros({1 << 14})));
}

TEST_F(FileMemoryTest, OneAtATimeAndADirectoryThatIsThere) {
  EXPECT_ERROR(FileMemory(directory_.path("none")), "no file can be made in ");
  EXPECT_FALSE(FileMemory::holds(at::zeros({1 << 14})));
  const FileMemory memory(directory_.path(""));
  EXPECT_ERROR(FileMemory(directory_.path("")), "[file memory] this thread allocates in files already");
  EXPECT_TRUE(FileMemory::holds(at::zeros({1 << 14})));
}

}  // namespace
}  // namespace remat::test

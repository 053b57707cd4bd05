// Tensors that are in a file while nobody uses them.
#include <algorithm>
#include <fstream>
#include <random>

#include <remat/memory.h>
#include <remat/state_pager.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"
#include "tiers/open_file.h"

namespace remat::test {
namespace {

constexpr int64_t kElements = 1 << 18;
constexpr int64_t kBytes = kElements * 4;

struct StatePagers : testing::Test {
  const TemporaryDirectory directory;
  StatePager pager{directory.path("")};
  std::vector<at::Tensor> expected;
  std::vector<std::shared_ptr<PagedState>> states;

  void store(int count) {
    torch::manual_seed(3);
    for (int i = 0; i < count; ++i) {
      expected.push_back(torch::randn(kElements));
      states.push_back(pager.add());
      states.back()->store({expected.back().clone()});
    }
    pager.end_round();
  }
};

TEST_F(StatePagers, KeepBitsShapesAndStrides) {
  const auto state = pager.add();
  const std::vector<at::Tensor> tensors{torch::randn({3, 5}).t(),
                                        torch::randn({2, 4, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast),
                                        torch::full({7}, 1.5, at::kBFloat16), torch::arange(9)};
  std::vector<at::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.clone());
  state->store(copies);
  EXPECT_FALSE(state->empty());
  const auto read = state->read();
  const auto fetched = state->fetch();
  EXPECT_TRUE(state->empty());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(torch::equal(read[i], tensors[i]));
    EXPECT_TRUE(torch::equal(fetched[i], tensors[i]));
    EXPECT_EQ(fetched[i].strides(), tensors[i].strides());
    EXPECT_EQ(fetched[i].dtype(), tensors[i].dtype());
  }
  EXPECT_EQ(state->fetch().size(), fetched.size()) << "whoever asked may have been interrupted";
  EXPECT_TRUE(torch::equal(state->read()[0], fetched[0]));
  state->store({});
  EXPECT_TRUE(state->fetch().empty());
}

TEST_F(StatePagers, WriteNothingAnewThatIsGivenBack) {
  memory::start_accounting();
  store(3);
  const auto before = memory::current();
  const int64_t written = pager.report().written_bytes;
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < states.size(); ++i) {
      EXPECT_TRUE(torch::equal(states[i]->fetch()[0], expected[i]));
      EXPECT_TRUE(states[i]->empty());
      states[i]->give_back();
      EXPECT_FALSE(states[i]->empty());
    }
    pager.end_round();
    EXPECT_EQ(memory::current(), before);
  }
  states[0]->give_back();  // what was not fetched
  EXPECT_TRUE(torch::equal(states[0]->read()[0], expected[0]));
  EXPECT_EQ(pager.report().written_bytes, written);
  EXPECT_EQ(pager.report().paged_bytes, 3 * kBytes);
}

TEST_F(StatePagers, HoldThreeInMemoryAtMost) {
  memory::start_accounting();
  store(6);
  expected.clear();
  const auto before = memory::current();
  for (int round = 0; round < 3; ++round) {
    memory::reset_peak();
    for (const auto& state : states) {
      auto tensors = state->fetch();
      tensors[0].add_(1);
      state->store(std::move(tensors));
      EXPECT_GE(memory::current(), before + kBytes);  // until it is written
    }
    EXPECT_LE(memory::peak(), before + 3 * kBytes + 4096);
    pager.end_round();
    EXPECT_EQ(memory::current(), before);
  }
  const auto report = pager.report();
  EXPECT_EQ(report.read_bytes, 18 * kBytes);
  EXPECT_EQ(report.written_bytes, 24 * kBytes);
  EXPECT_EQ(report.paged_bytes, 6 * kBytes);
  EXPECT_EQ(report.unwritten_bytes, 0);
}

TEST_F(StatePagers, AreRightInAnyOrder) {
  store(5);
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<int> order{0, 1, 2, 3, 4};
    std::shuffle(order.begin(), order.end(), random);
    for (const int i : order) {
      if (random() % 4 == 0) continue;
      auto tensors = states[i]->fetch();
      expected[i].add_(round);
      tensors[0].add_(round);
      states[i]->store(std::move(tensors));
      const int other = static_cast<int>(random() % 5);
      EXPECT_TRUE(torch::equal(states[other]->read()[0], expected[other]));
    }
    if (round % 3 == 0) pager.end_round();
  }
}

TEST_F(StatePagers, KeepInMemoryWhatCannotBeWritten) {
  StatePager small(directory.path(""), kBytes + 4096);
  const auto first = small.add(), second = small.add();
  const auto tensor = torch::randn(kElements);
  first->store({tensor.clone()});
  second->store({tensor.clone()});
  small.end_round();
  EXPECT_EQ(small.report().unwritten_bytes, kBytes);
  const auto failure = small.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->find("the limit is 1052672 bytes, of which 1048576 are in use"), std::string::npos) << *failure;
  EXPECT_FALSE(small.take_failure());
  EXPECT_TRUE(torch::equal(second->read()[0], tensor));
  first->store({});
  auto tensors = second->fetch();
  EXPECT_TRUE(torch::equal(tensors[0], tensor));
  EXPECT_EQ(small.report().unwritten_bytes, 0);
  second->store(std::move(tensors));  // there is room now
  small.end_round();
  EXPECT_EQ(small.report().unwritten_bytes, 0);
  EXPECT_EQ(small.report().paged_bytes, kBytes);
}

TEST_F(StatePagers, RefuseOtherBytesAndKeepThePlace) {
  store(1);
  const auto file = "/proc/self/fd/" + std::to_string(descriptor_in(directory.path("")));
  const auto change = [&](char by) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(100);
    const auto byte = static_cast<char>(stream.get() ^ by);
    stream.seekp(100);
    stream.put(byte);
  };
  change(1);
  EXPECT_ERROR(states[0]->fetch(), "[paged] 1048576 bytes could not be read from a file in ");
  EXPECT_ERROR(states[0]->read(), "the checksum differs; the update of this parameter has not begun");
  change(1);
  EXPECT_TRUE(torch::equal(states[0]->fetch()[0], expected[0]));
}

TEST_F(StatePagers, RefuseALimitThatHoldsNothing) {
  EXPECT_ERROR(StatePager(directory.path(""), 4095), "[paged] the limit is 4095 bytes; give 4096 or more, or none");
}

}  // namespace
}  // namespace remat::test

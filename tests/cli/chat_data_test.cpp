#include "cli/chat_data.h"

#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace remat::cli {
namespace {

/// Conversation i has i + 2 tokens, which are 10 i, 10 i + 1 ...; the last `i % 3 + 1` are learned, but never the
/// first.
ChatData make_chats(int64_t count, int64_t batch, uint64_t seed = 0) {
  std::vector<chat::LearnedTokens> conversations;
  for (int64_t i = 0; i < count; ++i) {
    chat::LearnedTokens conversation;
    for (int64_t t = 0; t < i + 2; ++t) {
      conversation.tokens.push_back(10 * i + t);
      conversation.learned.push_back(t > 0 && t >= i + 2 - (i % 3 + 1));
    }
    conversations.push_back(std::move(conversation));
  }
  return {std::move(conversations), 77, batch, seed};
}

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const auto packed = tensor.contiguous();
  return {packed.const_data_ptr<int64_t>(), packed.const_data_ptr<int64_t>() + packed.numel()};
}

TEST(ChatData, TargetsAreTheNextTokensThatAreLearned) {
  const auto batch = make_chats(3, 3).evaluation_batch(0);
  EXPECT_EQ(numbers(batch.input), (std::vector<int64_t>{0, 1, 0, 10, 11, 12, 20, 21, 22}));
  constexpr int64_t no = kNoTarget;
  EXPECT_EQ(numbers(batch.target), (std::vector<int64_t>{1, no, no, 11, 12, no, 21, 22, 23}));
  EXPECT_EQ(batch.weight, 1);
  EXPECT_EQ(numbers(make_chats(1, 1).evaluation_batch(0).input), std::vector<int64_t>{0}) << "the shortest there is";
}

TEST(ChatData, RowsCountByTheirLearnedTokens) {
  const auto data = make_chats(6, 4, /*seed=*/3);
  const auto whole = data.training_batch(2, 0, 4);
  EXPECT_EQ(whole.weight, 1);
  const auto count = [](const Batch& batch) { return (batch.target != kNoTarget).sum().item<int64_t>(); };
  double weights = 0;
  for (const int64_t first : {0, 2}) {
    const auto half = data.training_batch(2, first, 2);
    EXPECT_TRUE(at::equal(half.input, whole.input.narrow(0, first, 2)));
    EXPECT_TRUE(at::equal(half.target, whole.target.narrow(0, first, 2)));
    EXPECT_DOUBLE_EQ(half.weight, 2.0 * static_cast<double>(count(half)) / static_cast<double>(count(whole)));
    weights += half.weight;
  }
  EXPECT_DOUBLE_EQ(weights, 2);
}

TEST(ChatData, EveryConversationIsLearnedOnceInAnEpochAndEvaluatedOnce) {
  const auto data = make_chats(6, 4);
  std::multiset<int64_t> seen;
  for (int64_t step = 1; step <= 3; ++step) {
    for (const int64_t first : numbers(data.training_batch(step, 0, 4).input.select(1, 0))) seen.insert(first);
  }
  EXPECT_EQ(seen, (std::multiset<int64_t>{0, 0, 10, 10, 20, 20, 30, 30, 40, 40, 50, 50}));
  ASSERT_EQ(data.evaluation_batches(), 2);
  EXPECT_EQ(numbers(data.evaluation_batch(1).input.select(1, 0)), (std::vector<int64_t>{40, 50}));
  EXPECT_EQ(data.bytes(), 77);
  EXPECT_TRUE(data.labels().empty());
}

TEST(ChatData, OtherTokensAreOtherData) {
  EXPECT_EQ(make_chats(3, 1).fingerprint(), make_chats(3, 2, 5).fingerprint());
  EXPECT_NE(make_chats(3, 1).fingerprint(), make_chats(4, 1).fingerprint());
  const auto chats = [](bool learned) { return ChatData({{{1, 2, 3}, {false, learned, true}}}, 1, 1, 0); };
  EXPECT_NE(chats(true).fingerprint(), chats(false).fingerprint());
}

}  // namespace
}  // namespace remat::cli

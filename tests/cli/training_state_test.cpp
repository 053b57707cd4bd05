// What a training is continued from, of whole models and of those that are frozen in part.
#include "cli/training_state.h"

#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <remat/error.h>
#include <remat/file_memory.h>
#include <remat/memory.h>
#include <remat/paged_optimizer.h>

#include "support/expect_error.h"
#include "support/temporary_directory.h"
#include "zoo/gpt.h"
#include "zoo/lora.h"

namespace remat::cli {
namespace {

struct Learner {
  std::shared_ptr<zoo::Model> model;
  std::unique_ptr<torch::optim::AdamW> optimizer;

  explicit Learner(bool lora, uint64_t seed = 1, int64_t width = 32) {
    torch::manual_seed(seed);
    model = zoo::make_gpt({.layers = 2, .width = width, .heads = 2, .seq = 8, .vocab = 50});
    if (lora) zoo::add_lora(*model, {.rank = 2});
    std::vector<at::Tensor> trained;
    for (const auto& parameter : model->parameters()) {
      if (parameter.requires_grad()) trained.push_back(parameter);
    }
    optimizer = std::make_unique<torch::optim::AdamW>(trained, torch::optim::AdamWOptions(1e-2));
  }

  float step() {
    const auto loss = model->forward(torch::randint(50, {2, 8})).square().mean();
    loss.backward();
    auto* const paged = PagedOptimizer::of(*optimizer);
    paged == nullptr ? optimizer->step() : paged->step();
    optimizer->zero_grad();
    return loss.item<float>();
  }

  std::string save(int64_t steps_done) const {
    std::string bytes;
    save_state(*model, *optimizer, steps_done,
               [&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); });
    return bytes;
  }

  int64_t load(const std::string& bytes) {
    const auto read = [&](size_t offset, void* data, size_t size) {
      const size_t count = offset < bytes.size() ? std::min(size, bytes.size() - offset) : 0;
      std::memcpy(data, bytes.data() + offset, count);
      return count;
    };
    return load_state(*model, *optimizer, {.read = read, .size = bytes.size()});
  }
};

class TrainingState : public ::testing::TestWithParam<bool> {};

TEST_P(TrainingState, AnotherLearnerContinuesWithTheSameBits) {
  Learner first(GetParam());
  for (int i = 0; i < 3; ++i) first.step();
  const auto bytes = first.save(3);
  const auto expected = first.step();
  Learner second(GetParam());
  EXPECT_EQ(second.load(bytes), 3);
  EXPECT_EQ(second.step(), expected) << "also what dropout draws";
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingState, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "frozen" : "whole"; });

TEST(FrozenState, HasTheTrainedParametersAlone) {
  Learner whole(false), frozen(true);
  whole.step();
  frozen.step();
  const auto trained = static_cast<size_t>(12 * frozen.model->trained_parameter_count());
  EXPECT_GT(whole.save(1).size(), static_cast<size_t>(12 * whole.model->parameter_count()));
  EXPECT_GT(frozen.save(1).size(), trained);
  EXPECT_LT(frozen.save(1).size(), trained + 24'000) << "names, and the generator's 5 KB";
}

TEST(FrozenState, IsNotThatOfOtherWeights) {
  Learner first(true), other(true, 2);
  first.step();
  const auto before = other.model->parameters().back().clone();
  EXPECT_ERROR(other.load(first.save(1)), "were trained beside other frozen weights than the model has now");
  EXPECT_TRUE(other.model->parameters().back().equal(before));
}

TEST(RestoredState, ParametersThatAreNotFiniteAreNamed) {
  Learner learner(false);
  const auto parameters = trained_parameters(*learner.model);
  EXPECT_NO_THROW(check_finite(parameters, "a.ckpt"));
  const torch::NoGradGuard no_grad;
  const auto& [name, parameter] = parameters.front();
  at::Tensor(parameter).flatten()[1] = std::numeric_limits<float>::infinity();
  EXPECT_ERROR(check_finite(parameters, "a.ckpt"), "'a.ckpt' has parameters with NaN or infinite elements");
  EXPECT_ERROR(check_finite(parameters, "a.ckpt"), "'" + name + "' (1 of " + std::to_string(parameter.numel()));
}

// Nor does it take the memory of the file that it is loaded from.
TEST(PagedTrainingState, IsSavedAndLoadedWithoutTheMemoryForIt) {
  memory::start_accounting();
  const test::TemporaryDirectory directory;
  const auto extra = [](const auto& work) {
    memory::reset_peak();
    const int64_t before = memory::current();
    work();
    return memory::peak() - before;
  };
  Learner first(/*lora=*/false, 1, /*width=*/256), second(/*lora=*/false, 2, /*width=*/256);
  const int64_t state = 8 * first.model->parameter_count();
  PagedOptimizer of_first(*first.optimizer, directory.path("")), of_second(*second.optimizer, directory.path(""));
  first.step();
  std::string saved;
  EXPECT_LT(extra([&] { saved = first.save(1); }), state / 4);
  ASSERT_GT(saved.size(), static_cast<size_t>(state));
  EXPECT_LT(extra([&] { EXPECT_EQ(second.load(saved), 1); }), state / 4);  // parameters take the place of others
  for (const auto& parameter : second.model->parameters()) EXPECT_FALSE(FileMemory::holds(parameter));
  const float loss = first.step(), later = first.step();
  second.load(saved);  // the generator's state with it
  EXPECT_EQ(second.step(), loss);
  EXPECT_EQ(second.step(), later);
}

}  // namespace
}  // namespace remat::cli

// remat::checkpoint: what it may return, nesting, segments, and how it compares with the textbook checkpoint.
#include <remat/memory.h>

#include "support/compare.h"
#include "support/oracle.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

/// Piece 65,536 + i is as large as piece i, so that an index of 16 bits would take one for the other.
TEST(Checkpoint, OfAnOperatorWithManyResults) {
  constexpr int64_t kPieces = 66'000, kFull = 100, kSize = 16;
  std::vector<int64_t> sizes(kPieces, 0);
  for (int64_t i = 0; i < kFull; ++i) sizes[size_t(i)] = sizes[size_t(65'536 + i)] = kSize;
  const auto gradient = [&](bool checkpointed) {
    torch::manual_seed(4);
    auto x = torch::randn({2 * kFull * kSize}).requires_grad_();
    const auto program = [&](const at::Tensor& a) {
      const auto pieces = at::split_with_sizes_copy(a * 2, sizes);
      return (pieces[65'536 + 7].sin() + pieces[7].cos()).sum();
    };
    (checkpointed ? checkpoint(program, x) : program(x)).backward();
    return x.grad();
  };
  EXPECT_TRUE(same_bits(gradient(true), gradient(false)));
  const auto rows = [](bool checkpointed) {
    torch::manual_seed(4);
    auto x = torch::randn({kPieces, 2}).requires_grad_();
    const auto program = [](const at::Tensor& a) {
      const auto made = at::unbind_copy(a * 2);
      return (made.back().sin() * made[40'000].cos()).sum();
    };
    (checkpointed ? checkpoint(program, x) : program(x)).backward();
    return x.grad();
  };
  EXPECT_TRUE(same_bits(rows(true), rows(false)));
}

TEST(Checkpoint, ReturnsTensorsTuplesVectorsStructsAndNothing) {
  struct Pair {
    at::Tensor sum;
    int64_t count;
  };
  const auto program = [](bool checkpointed) {
    torch::manual_seed(4);
    auto x = torch::randn({6, 6}).requires_grad_();
    const auto tensor = [](const at::Tensor& a) { return a.sin() * a; };
    const auto tuple = [](const at::Tensor& a) { return std::make_tuple(a.exp() * a, a.cos() * a); };
    const auto vector = [](const at::Tensor& a) { return std::vector<at::Tensor>{a.tanh() * a, a.sigmoid() * a}; };
    const auto structure = [](const at::Tensor& a) { return Pair{(a * a.sin()).sum(), a.numel()}; };
    at::Tensor captured;
    const auto nothing = [&] { captured = (x.cos() * x).exp(); };
    at::Tensor loss;
    if (checkpointed) {
      auto a = checkpoint(tensor, x);
      auto [b, c] = checkpoint(tuple, a);
      auto list = checkpoint(vector, b);
      auto pair = checkpoint(structure, list[0]);
      static_assert(std::is_void_v<decltype(checkpoint(nothing))>);
      checkpoint(nothing);
      loss = pair.sum * static_cast<double>(pair.count) + (list[1] * c * captured).sum();
    } else {
      auto a = tensor(x);
      auto [b, c] = tuple(a);
      auto list = vector(b);
      auto pair = structure(list[0]);
      nothing();
      loss = pair.sum * static_cast<double>(pair.count) + (list[1] * c * captured).sum();
    }
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add("grad", x.grad());
    return outcome;
  };
  expect_same_bits(program(false), program(true), "results of every kind");
}

TEST(Checkpoint, NestsAndMixesWithPlainParts) {
  const auto program = [](bool checkpointed) {
    torch::manual_seed(4);
    nn::Linear a(8, 8), b(8, 8), c(8, 8);
    auto x = torch::randn({4, 8});
    const auto inner = [&](at::Tensor h) { return at::dropout(b->forward(h).relu_(), 0.3, true) * h; };
    const auto outer = [&](at::Tensor h) {
      h = a->forward(h).sigmoid();
      h = checkpointed ? checkpoint(inner, h) : inner(h);
      return checkpointed ? checkpoint_with(Policy::keep_compute(), inner, h) : inner(h);
    };
    auto h = c->forward(checkpointed ? checkpoint(outer, x) : outer(x));
    h = checkpointed ? checkpoint_with(Policy::keep_all(), outer, h) : outer(h);
    h.pow(2).sum().backward();
    Outcome outcome;
    for (const auto& layer : {a, b, c}) outcome.add_module(*layer);
    outcome.add_generator();
    return outcome;
  };
  expect_same_bits(program(false), program(true), "nested");
}

TEST(Checkpoint, SequentialInEverySegmentCount) {
  const auto program = [](int64_t segments) {
    torch::manual_seed(4);
    nn::Sequential model(nn::Linear(8, 8), nn::ReLU(nn::ReLUOptions().inplace(true)), nn::Linear(8, 8),
                         nn::Dropout(0.2), nn::LayerNorm(nn::LayerNormOptions({8})), nn::Linear(8, 8), nn::GELU());
    auto x = torch::randn({4, 8});
    auto y = segments == 0 ? model->forward(x) : checkpoint_sequential(model, segments, x);
    y.pow(2).sum().backward();
    Outcome outcome;
    outcome.add_module(*model);
    outcome.add_generator();
    return outcome;
  };
  const Outcome plain = program(0);
  for (int64_t segments = 1; segments <= 7; ++segments) {
    expect_same_bits(plain, program(segments), std::to_string(segments) + " segments");
  }
  EXPECT_THROW(program(8), Error);
  EXPECT_THROW(program(-1), Error);
}

TEST(Checkpoint, FreesWhatItDrops) {
  memory::start_accounting();
  auto x = torch::randn({256, 256}).requires_grad_();
  const auto block = [](const at::Tensor& a) {
    auto h = a;
    for (int i = 0; i < 10; ++i) h = h.sin() * 0.9;
    return h;
  };
  const int64_t one = 256 * 256 * 4;
  const int64_t before = memory::current();
  auto y = checkpoint(block, x);
  EXPECT_LE(memory::current() - before, one + 4096) << "only the result stays";
  y.sum().backward();
  x.mutable_grad().reset();
  y.reset();
  EXPECT_EQ(memory::current(), before);
}

TEST(Checkpoint, KeptTensorsAreNotRecomputed) {
  memory::start_accounting();
  Session session;
  auto x = torch::randn({64, 64}).requires_grad_();
  const auto replays_with = [&](bool kept) {
    auto step = session.step();
    auto y = checkpoint(
        [&](const at::Tensor& a) {
          auto h = a.exp();
          if (kept) keep(h);
          return h.sin().mul(2);
        },
        x);
    y.sum().backward();
    y.reset();
    return step.end().operators_replayed;
  };
  EXPECT_GT(replays_with(false), 0);
  EXPECT_EQ(replays_with(true), 0);
}

TEST(Checkpoint, AgreesWithTheTextbookCheckpoint) {
  const auto program = [](int kind) {
    torch::manual_seed(4);
    nn::Linear a(8, 16), b(16, 8);
    auto x = torch::randn({4, 8}).requires_grad_();
    const Block block = [&](const std::vector<at::Tensor>& in) {
      return std::vector<at::Tensor>{at::dropout(b->forward(at::gelu(a->forward(in[0]))), 0.3, true) + in[0]};
    };
    std::vector<at::Tensor> h = {x};
    for (int i = 0; i < 3; ++i)
      h = kind == 0 ? block(h) : kind == 1 ? checkpoint(block, h) : naive_checkpoint(block, h);
    h[0].pow(2).sum().backward();
    Outcome outcome;
    outcome.add("grad of x", x.grad());
    outcome.add_module(*a);
    outcome.add_module(*b);
    outcome.add_generator();
    return outcome;
  };
  const Outcome plain = program(0);
  expect_same_bits(plain, program(1), "remat");
  expect_same_bits(plain, program(2), "textbook");
}

TEST(Checkpoint, CallsTheFunctionOnceWhereTheTextbookOneCallsItTwice) {
  const auto program = [](int kind, int& calls) {
    torch::manual_seed(4);
    nn::BatchNorm1d norm(8);
    auto x = torch::randn({4, 8}).requires_grad_();
    const Block block = [&](const std::vector<at::Tensor>& in) {
      ++calls;
      return std::vector<at::Tensor>{norm->forward(in[0]).sigmoid()};
    };
    const std::vector<at::Tensor> in = {x};
    auto out = kind == 0 ? block(in) : kind == 1 ? checkpoint(block, in) : naive_checkpoint(block, in);
    out[0].pow(2).sum().backward();
    Outcome outcome;
    outcome.add("grad of x", x.grad());
    outcome.add_module(*norm);
    return outcome;
  };
  int plain_calls = 0, remat_calls = 0, textbook_calls = 0;
  const Outcome plain = program(0, plain_calls);
  expect_same_bits(plain, program(1, remat_calls), "remat");
  const Outcome textbook = program(2, textbook_calls);
  EXPECT_EQ(remat_calls, 1);
  EXPECT_EQ(textbook_calls, 2);
  // The running mean was updated twice, and so was the count of batches.
  for (size_t i = 0; i < plain.tensors.size(); ++i) {
    const bool is_buffer = plain.tensors[i].first.rfind("buffer", 0) == 0;
    EXPECT_EQ(same_bits(plain.tensors[i].second, textbook.tensors[i].second), !is_buffer) << plain.tensors[i].first;
  }
}

/// Plans give up what scopes hold from outside where there is no room for it.
TEST(Checkpoint, PlansGoBelowWhatScopesHold) {
  std::vector<nn::Linear> layers;
  for (int i = 0; i < 8; ++i) {
    layers.emplace_back(32, 32);
    for (auto& p : layers.back()->parameters()) p.mutable_grad() = at::zeros_like(p);
  }
  const at::Tensor input = torch::ones({512, 32});
  const auto train = [&](Session& session) {
    at::Tensor h = input;
    Step step = session.step();
    for (auto& layer : layers) h = checkpoint([&](const at::Tensor& x) { return at::gelu(layer->forward(x)) + x; }, h);
    h = h.mean();
    h.backward();
    h.reset();
    return step.end();
  };
  Session recorded;
  const int64_t with_all_inputs = train(recorded).peak_bytes;
  const int64_t least = *recorded.min_budget_bytes();
  EXPECT_LT(least, with_all_inputs * 2 / 3);
  Session session({.budget = Budget::bytes(least * 5 / 4)});
  train(session);
  for (int step = 0; step < 3; ++step) {
    const StepReport report = train(session);
    EXPECT_EQ(report.planned_peak_bytes, report.peak_bytes);
  }
  EXPECT_LE(floor_of(session.graph()).peak_bytes, least);
}

/// What a block holds from outside goes when backward has been through the block.
TEST(Checkpoint, HoldsInputsNoLongerThanTheBlockNeedsThem) {
  const auto w = torch::randn({512, 512}).requires_grad_();
  const int64_t bytes = static_cast<int64_t>(w.nbytes());
  Session session;
  Step step = session.step();
  at::Tensor h = w * 1;
  int64_t between = 0;
  for (int i = 0; i < 8; ++i) {
    h = checkpoint([](const at::Tensor& x) { return torch::dropout(x, 0.5, true).sigmoid().exp(); }, h);
    if (i == 0) h.register_hook([&](const at::Tensor&) { between = memory::current(); });
  }
  const int64_t before = memory::current();
  h = h.mean();
  h.backward();
  h.reset();
  // Seven inputs less, one gradient more.
  EXPECT_LT(between, before - 5 * bytes);
}

}  // namespace
}  // namespace remat::test

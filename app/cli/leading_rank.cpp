#include "cli/leading_rank.h"

#include <cstdio>
#include <exception>

#include <remat/error.h>

#include "cli/data_parallel.h"
#include "cli/interrupt.h"
#include "cli/printable.h"
#include "cli/training_order.h"

namespace remat::cli {
namespace {

const std::string kNoMore;  // in place of an order

}  // namespace

LeadingRank::~LeadingRank() {
  if (!sound_) return;
  try {
    trainer_->parallel()->broadcast(kNoMore);
  } catch (const std::exception&) {  // one of them has ended: the others will see it
    sound_ = false;
  }
}

template <class F>
auto LeadingRank::together(const std::string& order, const F& own) {
  sound_ = false;
  trainer_->parallel()->broadcast(order);
  try {
    auto result = own();
    sound_ = true;
    return result;
  } catch (...) {
    sound_ = goes_on_after(order, std::current_exception());
    throw;
  }
}

StepResult LeadingRank::step() {
  return together(step_order(), [&] { return trainer_->step(); });
}

std::optional<Evaluation> LeadingRank::evaluate() {
  return together(evaluation_order(), [&] { return trainer_->evaluate(); });
}

void LeadingRank::write(Output output, const std::string& path, const nlohmann::json& about) {
  together(write_order(output, path, about), [&] {
    trainer_->write(output, path, about);
    return true;
  });
}

void follow(Trainer& trainer) {
  const PoliteStop polite;  // the first process ends the step, and saves
  std::exception_ptr failure;
  while (true) {
    const std::string order = trainer.parallel()->broadcast({});
    if (order == kNoMore) break;
    try {
      carry_out(order, trainer);
    } catch (const BudgetError&) {  // the first process has these too, and saves what there is
      failure = std::current_exception();
    } catch (const UnreadExamples&) {
      failure = std::current_exception();
    } catch (const std::exception& error) {
      if (!goes_on_after(order, std::current_exception())) throw;
      std::fprintf(stderr, "remat: %s\n", printable(error.what()).c_str());
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace remat::cli

// remat/fit_steps.h -- fit() for whoever has a function that makes a training step of a size: remat runs the steps.
//
//   const auto found = remat::fit({.sizes = remat::fit_sizes(1, 1024), .budget_bytes = int64_t{6} << 30},
//                                 [&](int64_t batch) {
//                                   return [&, x = data.narrow(0, 0, batch), y = labels.narrow(0, 0, batch)] {
//                                     optimizer.zero_grad();
//                                     torch::nll_loss(model->forward(x), y).backward();
//                                   };
//                                 });
//   std::cout << remat::to_text(found);
#pragma once

#include <cstdint>
#include <functional>

#include <remat/fit.h>
#include <remat/session.h>

namespace remat {

/// One forward and backward pass, as often as it is called, with data that were made before.
using FitStep = std::function<void()>;

/// Makes a step of a size. Called anew for each run, whose step is called a few times and then destroyed. What they do
/// to the model stays done: leave out the optimizer's step, or give a model that may learn. Along depth or width it
/// makes the model too, which the step holds.
using MakeFitStep = std::function<FitStep(int64_t size)>;

/// fit() by steps of sessions: one for each run, with the budget of `options` (0: the device's limit, as it is now) and
/// the other options of `session`. Everything alive counts; what the first steps leave behind, as gradients and an
/// optimizer's state, is there before anything is measured. Where the device has streams, a step's time is that until
/// its kernels have ended. Throws as the other fit() does, Error for a device that is not there or has no memory, for
/// ranks, and where `make_step` gives no step; what that and its steps throw is handed on.
Fit fit(FitOptions options, const MakeFitStep& make_step, SessionOptions session = {});

}  // namespace remat

// tests/support/predicted_peaks.h -- follows plans of random actions, and expects each step to peak where it was said
// and to give the same graph as a step without a plan.
#pragma once

#include <functional>
#include <string>

#include <remat/remat.h>

namespace remat::test {

/// `train` runs one step of the session; every step is the same, and gradients exist before the first.
void expect_predicted_peaks(const std::function<void(Session&)>& train, const std::string& what = "");

}  // namespace remat::test

// cli/fitting.h -- runs steps of the zoo's models in the sizes that a search for what fits asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <remat/fit.h>

#include "cli/settings.h"

namespace remat::cli {

/// Throws UsageError for a size that the model does not have.
void check_sizes(const FitSettings& settings);

/// The sizes to choose from, ascending; with the divisors of an effective batch.
std::vector<int64_t> sizes_along(const FitSettings& settings);

/// Makes each batch of one model's examples; along the others a model for each size.
class ZooSteps {
 public:
  ZooSteps(const FitSettings& settings, int64_t budget_bytes);
  ~ZooSteps();
  ZooSteps(const ZooSteps&) = delete;
  ZooSteps& operator=(const ZooSteps&) = delete;

  FitTrial run(int64_t size, FitMode mode);

  /// The budget in bytes. A share is measured by a plain step of the usual size.
  static int64_t budget_bytes(const FitSettings& settings);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace remat::cli

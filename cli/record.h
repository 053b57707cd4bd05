// cli/record.h -- `remat record`.
#pragma once

#include "cli/settings.h"

namespace remat::cli {

/// Records a training step, writes its graph to a file and prints what is in it. Returns the exit code: 0, or 128 + a
/// signal's number, and then nothing was written.
int run_record(const RecordSettings& settings);

}  // namespace remat::cli

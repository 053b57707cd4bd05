// cli/record.h -- `remat record`.
#pragma once

#include "cli/settings.h"

namespace remat::cli {

/// Records a training step, writes its graph to a file and prints what is in it.
void run_record(const RecordSettings& settings);

}  // namespace remat::cli

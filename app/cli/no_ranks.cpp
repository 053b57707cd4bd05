// Where LibTorch has no c10d, or Gloo's headers are missing: for all that ranks need.
#include <remat/error.h>

#include "cli/data_parallel.h"
#include "cli/launch_ranks.h"
#include "cli/rank_group.h"
#include "cli/rank_meeting.h"

namespace remat::cli {
namespace {

[[noreturn]] void fail() {
  throw Error(
      "[ranks] this remat was built without c10d; install Gloo's headers (Debian's package libgloo-dev), build it "
      "against a LibTorch that has c10d, or train on one process");
}

}  // namespace

Launched launch_ranks(int /*count*/) { fail(); }
std::unique_ptr<RankGroup> join_ranks(const RankPlace& /*place*/) { fail(); }
std::unique_ptr<DataParallel> DataParallel::make(zoo::Model& /*model*/, RankGroup& /*ranks*/, bool /*shard*/) {
  fail();
}

void begin_meeting(const RankPlace& /*place*/) { fail(); }
void tell_ranks(const std::string& /*reason*/) noexcept {}

}  // namespace remat::cli

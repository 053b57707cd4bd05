// Where LibTorch has no c10d, or Gloo's headers are missing: see cli/data_parallel.cpp and cli/rank_meeting.cpp.
#include <remat/error.h>

#include "cli/data_parallel.h"
#include "cli/rank_meeting.h"

namespace remat::cli {
namespace {

[[noreturn]] void fail() {
  throw Error(
      "[ranks] this remat was built without c10d; install Gloo's headers (Debian's package libgloo-dev), build it "
      "against a LibTorch that has c10d, or train on one process");
}

}  // namespace

std::unique_ptr<DataParallel> DataParallel::join(zoo::Model& /*model*/, const RankPlace& /*place*/, bool /*shard*/,
                                                 const nlohmann::json& /*options*/) {
  fail();
}

void begin_meeting(const RankPlace& /*place*/) { fail(); }
void tell_ranks(const std::string& /*reason*/) noexcept {}

}  // namespace remat::cli

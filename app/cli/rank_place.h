// cli/rank_place.h -- which of several processes this one is, and where it meets the others.
#pragma once

#include <optional>
#include <string>

namespace remat::cli {

struct RankPlace {
  int rank = 0;
  int size = 1;
  std::string file;  ///< that the processes of one machine share; empty: by MASTER_ADDR and MASTER_PORT
};

/// What torchrun and others say in RANK and WORLD_SIZE; nothing where they are not set. Throws Error for what is no
/// place.
std::optional<RankPlace> place_from_environment();

}  // namespace remat::cli

// src/tiles/head_trial.h -- tiles of a head that give the bits of the whole, found by trying.
#pragma once

#include "tiles/choices.h"
#include "tiles/head.h"

namespace remat::tiles {

struct HeadChoice {
  TileChoice choice;
  HeadTiles tiles;
};

/// For heads with at least one token, class and number. The first call with new shapes tries, see remat/tiles.h, and
/// LinearCrossEntropyOptions for `whole_trial`.
HeadChoice choose_tiles(const Head& head, const HeadNeeds& needs, bool whole_trial);

}  // namespace remat::tiles

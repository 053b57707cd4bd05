// src/tiles/mlp_trial.h -- tiles of two linear layers that give the bits of the whole, found by trying.
#pragma once

#include "tiles/choices.h"
#include "tiles/mlp.h"

namespace remat::tiles {

struct MlpChoice {
  TileChoice choice;
  MlpTiles tiles;
};

/// For at least one token, hidden unit and number. As choose_tiles() of a head.
MlpChoice choose_tiles(const Mlp& mlp, const MlpParts<bool>& needs, bool whole_trial);

}  // namespace remat::tiles

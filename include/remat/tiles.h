// remat/tiles.h -- which tiles a computation in tiles was made in, and why.
//
// linear_cross_entropy() and tiled_mlp() never hold their largest tensor whole where tiles of it give the bits that the
// whole gives. Whether they do is the matter of a trial: the first call with new shapes computes both, on numbers of
// its own, and compares. It draws from no generator that anybody else has, and autograd and sessions see nothing of it.
#pragma once

#include <cstdint>
#include <string>

namespace remat {

/// How the largest tensor of a call (rows: tokens; columns: classes, or hidden units) was taken.
struct TileChoice {
  /// Tokens in a tile, in the forward pass and for the gradient of the input. 0: the tensor was whole.
  int64_t rows = 0;
  /// Classes or hidden units in a tile for the gradients of weights and biases, which are summed over all tokens; it
  /// costs that the tensor is computed once more. 0: these gradients are summed over the tiles of rows.
  int64_t columns = 0;
  /// Why, in a sentence.
  std::string reason;

  bool operator==(const TileChoice&) const = default;
  bool is_whole() const { return rows == 0; }  ///< no tiles were taken
};

/// That of this thread's last call of linear_cross_entropy() or tiled_mlp(). Before the first: whole.
TileChoice last_tile_choice();

}  // namespace remat

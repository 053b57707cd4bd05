// remat/tiles.h -- which tiles a computation in tiles was made in, and why.
//
// linear_cross_entropy() and tiled_mlp() never hold their largest tensor whole where tiles of it give the bits that the
// whole gives. Whether they do is the matter of a trial: the first call with new shapes computes both, on numbers of
// its own, and compares. It draws from no generator that anybody else has, and autograd and sessions see nothing of it.
#pragma once

#include <cstdint>
#include <string>

namespace remat {

/// Fewer tokens of a head are one tile.
inline constexpr int64_t kFewestTiledTokens = 208;
/// Bytes of logits from which on tiles are worth their product more, where nobody says ("auto").
inline constexpr int64_t kLargeLogitsBytes = int64_t(16) << 20;

/// How the largest tensor of a call (rows: tokens; columns: classes, or hidden units) was taken.
struct TileChoice {
  /// Tokens in a tile, in the forward pass. 0: the tensor was whole.
  int64_t rows = 0;
  /// Classes or hidden units in a tile for the gradients of weights and biases, which are summed over all tokens. Where
  /// the gradient of the input cannot be summed over these tiles too, which the reason says, the tensor is computed
  /// once more for it. 0: gradients are made of the tiles of rows.
  int64_t columns = 0;
  /// Why, in a sentence.
  std::string reason;

  bool operator==(const TileChoice&) const = default;
  bool is_whole() const { return rows == 0; }  ///< no tiles were taken
};

/// That of this thread's last call of linear_cross_entropy() or tiled_mlp(). Before the first: whole.
TileChoice last_tile_choice();

}  // namespace remat

// data/resize.h -- pictures in another size.
#pragma once

#include "data/picture.h"

namespace remat::data {

/// The picture in another size, with the bits of Pillow's resize(..., BILINEAR): each new pixel is the mean of the old
/// ones around its place, with weights that fall linearly to 0, over a distance of one pixel of the larger of both
/// grids. First along rows, then along columns, rounded to 8 bits after both.
Picture resize(const Picture& picture, int64_t height, int64_t width);

/// The picture in another size, as Pillow's resize(..., NEAREST): each new pixel is the old one at the place of its
/// middle.
Picture resize_to_nearest(const Picture& picture, int64_t height, int64_t width);

/// As torchvision's Resize(side) and CenterCrop(side): the shorter side becomes `side`, the other one in proportion,
/// rounded down; of that the middle.
Picture resize_and_crop(const Picture& picture, int64_t side);

/// In the middle of `side` x `side` pixels, black around it. The picture is no larger.
Picture frame(const Picture& picture, int64_t side);

}  // namespace remat::data

// data/decode_picture.h -- pictures from the contents of PNG and JPEG files.
#pragma once

#include <string_view>

#include "data/picture.h"
#include "data/pictures.h"

namespace remat::data {

// The most of a picture that is decoded, into 300 MB. What a file says of its size is looked at before memory is taken.
constexpr int64_t kMostPixels = 100'000'000;
constexpr int64_t kMostSide = 65'535;  // of either side

/// Is a file of that name read as a picture? Its name ends with .png, .jpg or .jpeg, in small or capital letters.
bool has_picture_name(std::string_view path);

/// The pixels that Pillow's convert("RGB") gives: grey in three channels, of 16 bits the upper 8, without alpha, and
/// not turned as EXIF says. The contents decide whether it is PNG or JPEG, not the name. Throws Error, which names the
/// file, for a damaged or truncated file, for other formats, for more than kMostPixels or kMostSide, and in a build
/// without libpng and libjpeg. May be called on several threads at once.
Picture decode_picture(const NamedContents& file);

}  // namespace remat::data

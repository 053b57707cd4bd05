// data/decoders.h -- one decoder for each format, and what they share. Either both are built, of libpng and libjpeg, or
// no_decoders.cpp stands in for them.
#pragma once

#include <string>
#include <string_view>

#include "data/picture.h"

namespace remat::data {

Picture decode_png(const std::string& path, std::string_view contents);
Picture decode_jpeg(const std::string& path, std::string_view contents);

/// Throws Error for a size above kMostPixels or kMostSide; both numbers are below 2^31.
void check_pixels(const std::string& path, int64_t height, int64_t width);
/// Throws Error: the file cannot be read as `format`, since `problem`.
[[noreturn]] void refuse_damaged(const std::string& path, const char* format, const char* problem);

}  // namespace remat::data

// pretrained/picture_processor.h -- how the pictures that a model saw were made: preprocessor_config.json.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>

namespace remat::pretrained {

/// The defaults, but the side, are those of remat's own models.
struct PictureProcessor {
  int64_t side = 0;                              ///< pixels, of height and width
  bool nearest = false;                          ///< resized to the nearest pixels, not bilinearly
  double white = 255;                            ///< the pixel that becomes 1, before mean and deviation
  std::array<double, 3> mean = {0.5, 0.5, 0.5};  ///< of red, green and blue
  std::array<double, 3> deviation = {0.25, 0.25, 0.25};
};

/// Reads preprocessor_config.json of a model that sees `side` x `side` pixels. Throws Error where it cannot be read,
/// and where pictures are made in a way that remat has not: cropped, of another size, or by another filter than
/// bilinear and nearest.
PictureProcessor read_picture_processor(const std::filesystem::path& directory, int64_t side);

}  // namespace remat::pretrained

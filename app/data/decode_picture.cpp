#include "data/decode_picture.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "data/decoders.h"
#include "data/file_error.h"

namespace remat::data {

bool has_picture_name(std::string_view path) {
  constexpr std::array<std::string_view, 3> kEndings = {".png", ".jpg", ".jpeg"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) {
    return path.size() > ending.size() &&
           std::ranges::equal(ending, path.substr(path.size() - ending.size()), {}, {},
                              [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  });
}

void check_pixels(const std::string& path, int64_t height, int64_t width) {
  if (height <= kMostSide && width <= kMostSide && height * width <= kMostPixels) return;
  refuse_file(path, "has " + std::to_string(width) + " x " + std::to_string(height) + " pixels, and at most " +
                        std::to_string(kMostPixels) + ", and " + std::to_string(kMostSide) +
                        " on a side, are read; give a smaller picture, or leave it out of the folder");
}

void refuse_damaged(const std::string& path, const char* format, const char* problem) {
  refuse_file(path, "cannot be read as " + std::string(format) + " (" + problem +
                        "); get the file again, or leave it out of the folder");
}

Picture decode_picture(const NamedContents& file) {
  const auto& [path, contents] = file;
  if (contents.starts_with("\x89PNG\r\n\x1a\n")) return decode_png(path, contents);
  if (contents.starts_with("\xff\xd8\xff")) return decode_jpeg(path, contents);
  refuse_file(path, contents.empty() ? "is empty; get the file again, or leave it out of the folder"
                                     : "is neither a PNG nor a JPEG file; convert it, or leave it out of the folder");
}

}  // namespace remat::data

#include "data/pictures.h"

#include "data/file_error.h"

namespace remat::data {
namespace {

constexpr int64_t kMnistClasses = 10;
constexpr uint32_t kMostSide = 1024;
constexpr int64_t kCifarSide = 32;
constexpr size_t kCifarPixels = 3 * kCifarSide * kCifarSide;

uint8_t byte_at(std::string_view contents, size_t at) { return static_cast<uint8_t>(contents[at]); }

/// The big-endian numbers at the beginning of an IDX file of bytes: the sizes of its dimensions.
std::vector<uint32_t> read_idx_sizes(const NamedContents& file, size_t dimensions) {
  const size_t header = 4 * (1 + dimensions);
  const std::string magic = "0x0000080" + std::to_string(dimensions);  // bytes in so many dimensions
  if (file.contents.size() < header) {
    refuse_file(file.path, "has " + std::to_string(file.contents.size()) + " bytes, and " + std::to_string(header) +
                               " come before the data; get the file again");
  }
  const auto number = [&](size_t i) {
    uint32_t value = 0;
    for (size_t at = 4 * i; at < 4 * i + 4; ++at) value = value << 8 | byte_at(file.contents, at);
    return value;
  };
  if (number(0) != 0x0800 + dimensions) {
    refuse_file(file.path, "does not begin with the magic number " + magic +
                               "; give an IDX file as MNIST's are published, unpacked (gunzip)");
  }
  std::vector<uint32_t> sizes;
  uint64_t bytes = header;
  uint64_t product = 1;
  for (size_t i = 1; i <= dimensions; ++i) {
    sizes.push_back(number(i));
    if (i > 1 && (sizes.back() < 1 || sizes.back() > kMostSide)) {
      refuse_file(file.path, "has pictures with a side of " + std::to_string(sizes.back()) + " pixels; 1 to " +
                                 std::to_string(kMostSide) + " are read");
    }
    product *= sizes.back();  // 2^32 x 2^10 x 2^10 at most
  }
  bytes += product;
  if (sizes[0] == 0) refuse_file(file.path, "has no examples; get the file again");
  if (file.contents.size() != bytes) {
    refuse_file(file.path, "has " + std::to_string(file.contents.size()) + " bytes, and its beginning says " +
                               std::to_string(bytes) + "; get the file again");
  }
  return sizes;
}

void check_class(const NamedContents& file, int64_t picture, int64_t number, int64_t classes) {
  if (number < classes) return;
  refuse_file(file.path, "has label " + std::to_string(number) + " for picture " + std::to_string(picture) +
                             ", and there are 0 to " + std::to_string(classes - 1) + "; get the file again");
}

}  // namespace

Pictures read_idx(const NamedContents& pictures, const NamedContents& labels) {
  const auto sizes = read_idx_sizes(pictures, 3);
  const auto count = read_idx_sizes(labels, 1)[0];
  if (count != sizes[0]) {
    refuse_file(labels.path, "has " + std::to_string(count) + " labels, and '" + pictures.path + "' has " +
                                 std::to_string(sizes[0]) + " pictures; give files that belong together");
  }
  const auto pixels = pictures.contents.substr(size_t{4} * 4);
  Pictures result{.channels = 1, .height = sizes[1], .width = sizes[2], .pixels = {}, .classes = {}};
  result.pixels.assign(pixels.begin(), pixels.end());
  for (const char label : labels.contents.substr(size_t{2} * 4)) {
    const auto number = static_cast<uint8_t>(label);
    check_class(labels, static_cast<int64_t>(result.classes.size()), number, kMnistClasses);
    result.classes.push_back(number);
  }
  return result;
}

void append_cifar(const NamedContents& file, Cifar kind, Pictures& to) {
  const size_t labels = kind == Cifar::k10 ? 1 : 2, record = labels + kCifarPixels;
  const size_t size = file.contents.size();
  if (size == 0 || size % record != 0) {
    refuse_file(file.path, "has " + std::to_string(size) + " bytes, not one or more records of " +
                               std::to_string(record) + "; get the file again (the binary version)");
  }
  to.channels = 3;
  to.height = to.width = kCifarSide;
  for (size_t at = 0; at < size; at += record) {
    const auto number = byte_at(file.contents, at + labels - 1);
    check_class(file, static_cast<int64_t>(at / record), number, kind == Cifar::k10 ? 10 : 100);
    to.classes.push_back(number);
    const auto pixels = file.contents.substr(at + labels, kCifarPixels);
    to.pixels.insert(to.pixels.end(), pixels.begin(), pixels.end());
  }
}

}  // namespace remat::data

// cli/picture_source.h -- labelled pictures, one by one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/picture.h"

namespace remat::cli {

class PictureSource {
 public:
  virtual ~PictureSource() = default;

  /// How many there are.
  virtual int64_t size() const = 0;
  /// Throws Error where a file cannot be read as a picture. May be called on several threads at once.
  virtual data::Picture read(int64_t index) const = 0;
  /// The number of its class.
  virtual int64_t class_of(int64_t index) const = 0;
  /// What the classes are called, by number.
  virtual const std::vector<std::string>& class_names() const = 0;

  /// Of all files.
  virtual int64_t bytes() const = 0;
  /// Hexadecimal digits that stand for the pictures and their order.
  virtual const std::string& fingerprint() const = 0;
};

enum class Split { kTraining, kTest };

}  // namespace remat::cli

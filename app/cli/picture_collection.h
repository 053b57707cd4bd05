// cli/picture_collection.h -- the pictures of MNIST, CIFAR-10 or CIFAR-100, from the files in which they are published.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/picture_source.h"
#include "data/pictures.h"

namespace remat::cli {

/// All are held in memory.
class PictureCollection final : public PictureSource {
 public:
  /// `pictures`: one or more, of 1 or 3 channels. Classes are called "0", "1" and so on.
  PictureCollection(data::Pictures pictures, int64_t classes);

  int64_t size() const override { return static_cast<int64_t>(pictures_.classes.size()); }
  /// Grey is repeated in three channels.
  data::Picture read(int64_t index) const override;
  int64_t class_of(int64_t index) const override { return pictures_.classes[static_cast<size_t>(index)]; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int64_t bytes() const override { return static_cast<int64_t>(pictures_.pixels.size()); }
  const std::string& fingerprint() const override { return fingerprint_; }

  int64_t height() const { return pictures_.height; }
  int64_t width() const { return pictures_.width; }

 private:
  data::Pictures pictures_;
  std::vector<std::string> names_;
  std::string fingerprint_;
};

/// Are there files of MNIST, unpacked, or of CIFAR-10 or CIFAR-100 (binary version)?
bool holds_collection(const std::string& directory);

/// The training or test pictures of a directory that holds one. Throws Error where files of it are missing or not of
/// their form.
std::unique_ptr<PictureCollection> read_collection(const std::string& directory, Split split);

}  // namespace remat::cli

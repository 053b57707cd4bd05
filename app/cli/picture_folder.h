// cli/picture_folder.h -- PNG and JPEG files, each in a folder that is named for its class: torchvision's ImageFolder.
//
//   pictures/cat/1.jpg
//   pictures/cat/more/2.png
//   pictures/dog/1.jpg
#pragma once

#include <string>
#include <vector>

#include "cli/picture_source.h"

namespace remat::cli {

/// A picture is read and decoded each time it is asked for; only names are held.
class PictureFolder final : public PictureSource {
 public:
  /// Lists the files, also those in folders within those of the classes, and decodes the first one. Classes are in the
  /// order of their names' bytes, their pictures in that of their paths'. Hidden files and folders are left out, and so
  /// are files that are no pictures by their name. Throws Error for a folder that cannot be read, that has no class or
  /// "train" and the like for classes, for a class without pictures, and for pictures of other formats.
  explicit PictureFolder(std::string path);

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  data::Picture read(int64_t index) const override;
  int64_t class_of(int64_t index) const override { return files_[static_cast<size_t>(index)].number; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int64_t bytes() const override { return bytes_; }
  /// Of paths and sizes: contents are not read for it.
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  struct File {
    std::string path;  ///< below path_
    int64_t number;    ///< of its class
    int64_t bytes;
  };

  void list_class(const std::string& name);

  std::string path_;
  std::vector<std::string> names_;
  std::vector<File> files_;
  int64_t bytes_ = 0;
  std::string fingerprint_;
};

}  // namespace remat::cli

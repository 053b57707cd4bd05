#include "cli/picture_folder.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <utility>

#include "cli/fingerprint.h"
#include "cli/input_file.h"
#include "cli/planning.h"
#include "data/decode_picture.h"
#include "data/file_error.h"

namespace remat::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 32;  // folders within one of a class; a link may lead back
constexpr int64_t kMostBytes = int64_t{1} << 30;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

/// A picture by its name, of a format that is not read.
bool is_of_other_format(const fs::path& path) {
  constexpr std::array<std::string_view, 8> kEndings = {".bmp",  ".gif", ".webp", ".tif",
                                                        ".tiff", ".ppm", ".pgm",  ".avif"};
  auto ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return std::ranges::find(kEndings, ending) != kEndings.end();
}

/// Parts of a data set, not classes of it.
bool are_splits(const std::vector<std::string>& names) {
  constexpr std::array<std::string_view, 6> kSplits = {"train", "training", "val", "valid", "validation", "test"};
  return std::ranges::all_of(names, [&](const auto& n) { return std::ranges::find(kSplits, n) != kSplits.end(); });
}

[[noreturn]] void refuse_error(const std::string& path, const std::error_code& error) {
  data::refuse_file(path, "cannot be read (" + error.message() + "); check the path, or leave it out of the folder");
}

}  // namespace

PictureFolder::PictureFolder(std::string path) : path_(std::move(path)) {
  std::error_code error;
  fs::directory_iterator entries(path_, error);
  if (error) {
    const bool file = error == std::errc::not_a_directory;
    data::refuse_file(path_, (file ? "is no directory" : "cannot be read (" + error.message() + ")") +
                                 "; give one with a folder of pictures for each class, or with the files of MNIST, "
                                 "CIFAR-10 or CIFAR-100");
  }
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    std::error_code ignored;
    if (!is_hidden(entries->path()) && entries->is_directory(ignored)) names_.push_back(entries->path().filename());
  }
  if (error) refuse_error(path_, error);
  if (names_.empty()) {
    data::refuse_file(path_,
                      "has none of train-images-idx3-ubyte (MNIST), data_batch_1.bin (CIFAR-10) and train.bin "
                      "(CIFAR-100), and no folders of pictures, one for each class; give the directory of one of "
                      "these, unpacked, or to classify texts --hf");
  }
  for (const auto& name : names_) {
    if (utf8(name) == name) continue;
    data::refuse_file((fs::path(path_) / name).string(),
                      "has a name that is no UTF-8, which a class needs: results are JSON; rename the folder");
  }
  std::ranges::sort(names_);
  if (are_splits(names_)) {
    data::refuse_file(path_, "has the folders " + data::list_names(names_) +
                                 ", which are parts of a data set; give one of them with --data, and another with "
                                 "--eval");
  }
  for (const auto& name : names_) list_class(name);
  std::string list;
  for (const auto& file : files_) {
    bytes_ += file.bytes;
    list.append(file.path).append(1, '\0').append(std::to_string(file.bytes)).append(1, '\0');
  }
  fingerprint_ = cli::fingerprint(list);
  read(0);  // in this build, can pictures be read?
}

void PictureFolder::list_class(const std::string& name) {
  const auto directory = fs::path(path_) / name;
  const auto number = std::ranges::find(names_, name) - names_.begin();
  const auto before = files_.size();
  std::error_code error;
  fs::recursive_directory_iterator entries(directory, fs::directory_options::follow_directory_symlink, error);
  if (error) refuse_error(directory, error);
  for (; entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    if (error) refuse_error(directory, error);
    const auto& path = entries->path();
    if (is_hidden(path)) {
      entries.disable_recursion_pending();
      continue;
    }
    if (entries.depth() > kDeepest) {
      data::refuse_file(path, "is in more than " + std::to_string(kDeepest) +
                                  " folders within each other; remove the link that leads back");
    }
    std::error_code problem;
    if (entries->is_directory(problem)) continue;
    if (is_of_other_format(path)) {
      data::refuse_file(path, "is of a format that is not read; convert it to PNG or JPEG, or leave it out");
    }
    if (!data::has_picture_name(path.native())) continue;
    const auto bytes = entries->file_size(problem);
    if (problem) refuse_error(path, problem);
    files_.push_back({path.lexically_relative(path_), number, static_cast<int64_t>(bytes)});
  }
  if (error) refuse_error(directory, error);
  if (files_.size() == before) {
    data::refuse_file(directory, "has no .png, .jpg or .jpeg files; put the pictures of the class there, or remove it");
  }
  std::ranges::sort(files_.begin() + static_cast<std::ptrdiff_t>(before), files_.end(), {}, &File::path);
}

data::Picture PictureFolder::read(int64_t index) const {
  const auto path = (fs::path(path_) / files_[static_cast<size_t>(index)].path).string();
  return data::decode_picture({path, read_input(path, {"data", "check the file", kMostBytes})});
}

}  // namespace remat::cli

// data/pictures.h -- labelled pictures, from the binary files of MNIST and CIFAR as they are published.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace remat::data {

struct Pictures {
  int64_t channels = 0, height = 0, width = 0;
  std::vector<uint8_t> pixels;   ///< (picture, channel, row, column)
  std::vector<int64_t> classes;  ///< of each picture
};

/// A file, by the name that messages give it, and what is in it.
struct NamedContents {
  std::string path;
  std::string_view contents;
};

/// Grey pictures and labels from 0 to 9 in MNIST's form (IDX): big-endian numbers, then bytes. Throws Error, which
/// names the file, for another magic number, another size than the numbers say, no picture, pictures of no or more than
/// 1024 pixels on a side, files of different length, and other labels.
Pictures read_idx(const NamedContents& pictures, const NamedContents& labels);

/// Labels of a record of CIFAR: one of CIFAR-10; of CIFAR-100 one of 20 groups, and then one of 100 classes.
enum class Cifar { k10, k100 };

/// Appends the records of a file: labels, then 3 x 32 x 32 pixels. `to` is empty or has pictures of CIFAR. Throws
/// Error, which names the file, for a size that is not that of whole records, for no record, and for other labels.
void append_cifar(const NamedContents& file, Cifar kind, Pictures& to);

}  // namespace remat::data

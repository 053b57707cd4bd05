// data/labels.h -- the classes that labels stand for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/labelled_text.h"

namespace remat::data {

struct Labels {
  std::vector<std::string> names;          ///< of the classes, in order
  std::map<std::string, int64_t> numbers;  ///< the class of each label, as the data writes it

  int64_t classes() const { return static_cast<int64_t>(names.size()); }
  bool empty() const { return names.empty(); }
};

/// The classes of `examples`, of file `path`: `known`, where every label is one of these names, or every one is the
/// number of one; else the distinct labels in order, integers by their value: Error is thrown where there is but one.
Labels find_labels(const std::string& path, const std::vector<LabelledText>& examples,
                   const std::vector<std::string>& known);

/// The class of each example. Throws Error, which names the line, for a label that `labels` does not have.
std::vector<int64_t> classes_of(const std::string& path, const std::vector<LabelledText>& examples,
                                const Labels& labels);

}  // namespace remat::data

// pretrained/names.h -- what a parameter of the zoo is called in the weights that transformers writes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace remat::pretrained {

/// A module, or a parameter that is in none, here and there. A '*' stands for the number of a layer.
struct Renaming {
  std::string_view ours, theirs;
  bool transposed = false;  ///< their matrix is (in, out): GPT-2's
};

struct TheirName {
  std::string name;
  bool transposed = false;
};

/// What `ours`, "block3.proj.weight", is called by the first renaming that it or its module fits; nothing where none
/// does.
/// Only matrices are transposed: weights, not biases.
std::optional<TheirName> find_name(std::span<const Renaming> renamings, std::string_view ours);

/// The module of the classifier that their parameter `theirs` is part of, as peft takes it: "classifier" of
/// "classifier.dense.weight"; nothing where it is part of none. peft trains all of it.
std::optional<std::string> classifier_of(std::string_view theirs);

}  // namespace remat::pretrained

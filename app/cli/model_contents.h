// cli/model_contents.h -- what of a model's directory decides about a training, wherever the directory is.
#pragma once

#include <string>

namespace remat::cli {

/// Digits that stand for the contents of the directory's config.json, of its tokenizer's files, and of its weights:
/// their headers, sizes, and a sample of their bytes, since a resumed training takes those that it trains from its
/// checkpoint, and compares all the others. Files that are not there count as such.
std::string model_contents(const std::string& directory);

}  // namespace remat::cli

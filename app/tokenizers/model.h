// tokenizers/model.h -- what makes ids of a word: WordPiece or BPE.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/vocabulary.h"

namespace remat::tokenizers {

class Model {
 public:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Appends the ids of a word, which is well-formed UTF-8 and not empty.
  virtual void encode_word(std::string_view word, std::vector<int64_t>& ids) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  virtual std::optional<int64_t> unknown_id() const = 0;

 private:
  Vocabulary vocabulary_;
};

}  // namespace remat::tokenizers

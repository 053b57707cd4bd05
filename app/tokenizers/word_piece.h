// tokenizers/word_piece.h -- BERT's model: from its beginning on, a word is cut into the longest tokens that there are.
#pragma once

#include "tokenizers/model.h"

namespace remat::tokenizers {

struct WordPieceOptions {
  std::string unknown_token = "[UNK]";
  std::string continuation_prefix = "##";  ///< of tokens that do not begin a word
  int64_t most_characters = 100;           ///< longer words are unknown, as are those that no tokens make up
};

class WordPiece : public Model {
 public:
  /// Throws Error where the vocabulary lacks the unknown token.
  WordPiece(Vocabulary vocabulary, WordPieceOptions options);

  void encode_word(std::string_view word, std::vector<int64_t>& ids) const override;
  std::optional<int64_t> unknown_id() const override { return unknown_id_; }

 private:
  /// The longest token that `word` has at `begin`: its id and its end.
  std::optional<std::pair<int64_t, size_t>> longest_token(std::string_view word, size_t begin) const;

  WordPieceOptions options_;
  int64_t unknown_id_;
};

}  // namespace remat::tokenizers

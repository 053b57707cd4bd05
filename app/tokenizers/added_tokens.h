// tokenizers/added_tokens.h -- tokens that are found in a text as wholes, before the model sees it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/json_file.h"

namespace remat::tokenizers {

class Vocabulary;

struct AddedToken {
  std::string content = {};
  int64_t id = 0;
  bool single_word = false;  ///< not inside of a word
  bool lstrip = false;       ///< takes the spaces before it with it
  bool rstrip = false;       ///< takes the spaces behind it with it
  bool normalized = false;   ///< found in the normalized text, else in the text as it is

  bool operator==(const AddedToken&) const = default;
};

/// Of an object with the fields above; `id` is its id. `special`: what it is where it does not say; special tokens are
/// found in the text as it is, unless they say "normalized".
AddedToken read_added_token(const JsonNode& node, int64_t id, bool special = false);

/// Of a list as "added_tokens" in tokenizer.json. Throws Error where one is empty, or stands twice.
std::vector<AddedToken> read_added_tokens(const JsonNode& list);

/// Adds those of `others` whose contents are not there yet, with their ids in the vocabulary, or the next ones.
void add_missing(std::vector<AddedToken>& tokens, const std::vector<AddedToken>& others, const Vocabulary& vocabulary);

/// Finds tokens by their contents: from the left, and the longest where several begin at one place.
class AddedTokenFinder {
 public:
  /// Of tokens with the same content the first is taken; those without any are left out.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  /// Calls `piece` for what is between tokens, if anything, and `token` for tokens, in their order.
  void split(std::string_view text, const std::function<void(std::string_view)>& piece,
             const std::function<void(const AddedToken&)>& token) const;

 private:
  struct Range {
    size_t begin = 0, end = 0;
  };

  /// The longest token at byte `at`, or null.
  const AddedToken* find(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;   // in the order of their contents' bytes
  std::array<Range, 256> by_first_;  // those that begin with a byte
};

}  // namespace remat::tokenizers

// chat/conversations.h -- conversations, and prompts with completions, as tokens of which answers alone are learned.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/tokenizer.h"

namespace remat::chat {

struct LearnedTokens {
  std::vector<int64_t> tokens;
  std::vector<bool> learned;  ///< of each token, whether it is to be predicted: at least one, and not the first
};

struct Conversations {
  std::vector<LearnedTokens> examples;
  int64_t lines = 0;  ///< of the file, each a conversation
  int64_t cut = 0;    ///< those longer than an example may be
};

/// Reads JSON Lines of {"messages": [{"role": "user", "content": "..."}, ...]}, whose text the chat template of
/// `directory` makes, and {"prompt": "...", "completion": "..."}, whose text is both as they stand, with the tokens
/// that the tokenizer has around texts, and an end-of-sequence token. Learned is what the model is to say: messages of
/// the role "assistant" with the token that ends them, or the completion. A template that writes an answer otherwise
/// where others follow makes an example of each answer. Examples are cut to `most` tokens, and those left out whose
/// answer begins behind them.
///
/// Throws Error, which names the file and the line, for what is neither, or cannot be rendered, or has nothing left
/// that is learned; also where all answers of a line begin behind `most` tokens, when the file is read: with the
/// number of such lines, and how many tokens they need. `path` is for messages.
Conversations read_conversations(const std::string& path, std::string_view contents,
                                 const std::filesystem::path& directory, const tokenizers::Tokenizer& tokenizer,
                                 int64_t most);

}  // namespace remat::chat

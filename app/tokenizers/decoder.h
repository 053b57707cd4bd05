// tokenizers/decoder.h -- from tokens back to a text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tokenizers/json_file.h"

namespace remat::tokenizers {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Changes the tokens so that the text is all of them, one after the other.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

std::unique_ptr<Decoder> make_word_piece_decoder(std::string prefix, bool cleanup);
std::unique_ptr<Decoder> make_byte_level_decoder();

/// Of "decoder" in tokenizer.json: ByteFallback, ByteLevel, Fuse, Metaspace, Replace (of a string), Sequence, Strip,
/// WordPiece. A space between tokens where there is none. Throws Error for others.
std::unique_ptr<Decoder> read_decoder(const std::optional<JsonNode>& node);

}  // namespace remat::tokenizers

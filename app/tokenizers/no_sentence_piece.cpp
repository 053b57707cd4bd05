#include <remat/error.h>

#include "tokenizers/sentence_piece.h"

namespace remat::tokenizers {

std::unique_ptr<Tokenizer> load_sentence_piece(const std::filesystem::path& file, const ConfigFiles& /*config*/) {
  throw Error("[tokenizer] '" + file.string() + "' is a model of SentencePiece, and this remat was built without its " +
              "library; save the tokenizer as a tokenizer.json with transformers, or install Debian's package " +
              "libsentencepiece-dev and build remat again");
}

}  // namespace remat::tokenizers

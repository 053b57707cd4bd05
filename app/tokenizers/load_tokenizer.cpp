#include "tokenizers/load_tokenizer.h"

#include <remat/error.h>

#include "tokenizers/config_files.h"
#include "tokenizers/sentence_piece.h"
#include "tokenizers/tokenizer_json.h"
#include "tokenizers/vocabulary_files.h"

namespace remat::tokenizers {

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory) {
  const auto has = [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(directory / name, ignored);
  };
  const ConfigFiles config(directory);
  if (has("tokenizer.json")) return load_tokenizer_json(directory / "tokenizer.json", config);
  if (has("vocab.txt")) return load_bert(directory, config);
  if (has("vocab.json") && has("merges.txt")) return load_gpt2(directory, config);
  if (has("tokenizer.model")) return load_sentence_piece(directory / "tokenizer.model", config);
  throw Error("[tokenizer] '" + directory.string() +
              "' has no tokenizer.json, vocab.txt, vocab.json with merges.txt, " +
              "or tokenizer.model; give the directory of a model from Hugging Face");
}

}  // namespace remat::tokenizers

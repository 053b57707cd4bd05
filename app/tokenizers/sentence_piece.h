// tokenizers/sentence_piece.h -- the file tokenizer.model, by Google's library.
#pragma once

#include <filesystem>
#include <memory>

#include "tokenizers/config_files.h"
#include "tokenizers/tokenizer.h"

namespace remat::tokenizers {

/// "add_bos_token" (true where not said) and "add_eos_token" (false) of the configuration apply. Throws Error for what
/// is no such file, and where remat was built without the library (Debian's package libsentencepiece-dev).
std::unique_ptr<Tokenizer> load_sentence_piece(const std::filesystem::path& file, const ConfigFiles& config);

}  // namespace remat::tokenizers

// tokenizers/tokenizer_json.h -- the file tokenizer.json, a fast tokenizer as Hugging Face saves it.
#pragma once

#include <filesystem>
#include <memory>

#include "tokenizers/config_files.h"
#include "tokenizers/tokenizer.h"

namespace remat::tokenizers {

/// Throws Error for what is damaged, and for parts and models that are not known here.
std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& file, const ConfigFiles& config);

}  // namespace remat::tokenizers

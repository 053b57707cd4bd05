// tokenizers/vocabulary_files.h -- tokenizers saved as a vocabulary alone: the rest is as the model's class has it.
#pragma once

#include <filesystem>
#include <memory>

#include "tokenizers/config_files.h"
#include "tokenizers/tokenizer.h"

namespace remat::tokenizers {

/// vocab.txt, of BERT and those that took its tokenizer over. "do_lower_case", "strip_accents" and
/// "tokenize_chinese_chars" of the configuration apply.
std::unique_ptr<Tokenizer> load_bert(const std::filesystem::path& directory, const ConfigFiles& config);

/// vocab.json and merges.txt, of GPT-2. "add_prefix_space" and "add_bos_token" of the configuration apply.
std::unique_ptr<Tokenizer> load_gpt2(const std::filesystem::path& directory, const ConfigFiles& config);

}  // namespace remat::tokenizers

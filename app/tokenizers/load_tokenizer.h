// tokenizers/load_tokenizer.h -- the tokenizer of a model on Hugging Face, from the files in its directory.
#pragma once

#include <filesystem>
#include <memory>

#include "tokenizers/tokenizer.h"

namespace remat::tokenizers {

/// Reads the tokenizer of a model's directory, by the first of these that is there:
///
/// - tokenizer.json: WordPiece, byte-level BPE (GPT-2, Llama 3, Qwen 2), or BPE with bytes as fallback (Llama 2)
/// - vocab.txt: BERT
/// - vocab.json, merges.txt: GPT-2
/// - tokenizer.model: SentencePiece, if remat was built with it
///
/// and by tokenizer_config.json and special_tokens_map.json beside it, if there. The ids are those of transformers'
/// fast tokenizers; its truncation and padding are left out. The libraries differ in their tables of characters: those
/// newer than Unicode 14 may be split otherwise, and 73 newer than Unicode 11 have other compatibility forms.
///
/// Files may be damaged or hostile: Error names the file that cannot be read, does not hold together, or asks for what
/// is not known here. Files above 128 MiB are refused.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory);

}  // namespace remat::tokenizers

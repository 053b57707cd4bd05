// tests/tokenizers/samples.h -- small tokenizers as files.
#pragma once

#include <memory>
#include <string>

#include "support/temporary_directory.h"
#include "tokenizers/load_tokenizer.h"

namespace remat::test {

/// Uncased: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, "un" 5, "##aff" 6, "##able" 7, "cafe" 8, "," 9, "中" 10, "a"
/// 11,
/// "##b" 12.
inline const std::string kBert = R"({
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [
    {"id": 0, "content": "[PAD]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
      "special": true},
    {"id": 3, "content": "[SEP]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
      "special": true},
    {"id": 4, "content": "[MASK]", "single_word": false, "lstrip": true, "rstrip": false, "normalized": false,
      "special": true}],
  "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
    "lowercase": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
      {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
    "pair": [],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]",
      "ids": [3], "tokens": ["[SEP]"]}}},
  "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
    "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "un": 5, "##aff": 6, "##able": 7,
      "cafe": 8, ",": 9, "中": 10, "a": 11, "##b": 12}}})";

/// Byte-level: <|endoftext|> 0, "a" 1, "b" 2, "Ġ" 3, "Ã" 4, "©" 5, "ab" 6, "Ġab" 7, "Ã©" 8.
inline const std::string kGpt2 = R"({
  "added_tokens": [{"id": 0, "content": "<|endoftext|>", "special": true, "normalized": false}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
  "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
    "end_of_word_suffix": "", "fuse_unk": false,
    "vocab": {"<|endoftext|>": 0, "a": 1, "b": 2, "Ġ": 3, "Ã": 4, "©": 5, "ab": 6, "Ġab": 7, "Ã©": 8},
    "merges": ["a b", "Ġ ab", ["Ã", "©"]]}})";

/// Bytes as fallback: <unk> 0, <s> 1, "<0xE2>" 2, "<0x82>" 3, "<0xAC>" 4, "▁" 5, "a" 6, "b" 7, "▁a" 8.
inline const std::string kLlama = R"({
  "added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace",
    "pattern": {"String": " "}, "content": "▁"}]},
  "pre_tokenizer": null,
  "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
    {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
  "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
  "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
    "vocab": {"<unk>": 0, "<s>": 1, "<0xE2>": 2, "<0x82>": 3, "<0xAC>": 4, "▁": 5, "a": 6, "b": 7, "▁a": 8},
    "merges": ["▁ a"]}})";

/// `text` with the first `from` in it replaced.
inline std::string with(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("the sample does not have " + from);
  return text.replace(at, from.size(), to);
}

inline std::unique_ptr<tokenizers::Tokenizer> load_json(const std::string& text) {
  const TemporaryDirectory directory;
  directory.write("tokenizer.json", text);
  return tokenizers::load_tokenizer(directory.path(""));
}

using Ids = std::vector<int64_t>;

}  // namespace remat::test

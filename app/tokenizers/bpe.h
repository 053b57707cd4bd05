// tokenizers/bpe.h -- byte-pair encoding: neighbouring tokens are merged, pair by pair in the order of the merges.
//
// Words are characters here. Byte-level BPE has its words mapped before, a character for every byte (byte_level.h); BPE
// with bytes as fallback makes "<0xC3>" and the like of characters that it has no token for.
#pragma once

#include <array>
#include <unordered_map>

#include "tokenizers/json_file.h"
#include "tokenizers/model.h"

namespace remat::tokenizers {

struct BpeOptions {
  std::optional<std::string> unknown_token = std::nullopt;  ///< without one, characters that have no token are left out
  bool fuse_unknown = false;                                ///< neighbouring unknown characters are one unknown token
  bool byte_fallback = false;
  bool ignore_merges = false;            ///< a word that is a token is that token, whatever the merges say
  std::string continuation_prefix = {};  ///< of tokens that do not begin a word
  std::string end_suffix = {};           ///< of tokens that end a word
};

class Bpe : public Model {
 public:
  Bpe(Vocabulary vocabulary, BpeOptions options);

  /// Adds the next merge. Throws Error for tokens that the vocabulary lacks, and for a pair that is there already.
  void add_merge(std::string_view left, std::string_view right);

  /// In O(n log n) of the word's length.
  void encode_word(std::string_view text, std::vector<int64_t>& ids) const override;
  std::optional<int64_t> unknown_id() const override { return unknown_id_; }

 private:
  struct MergedPair {
    int32_t rank;
    int32_t id;
  };
  struct PairHash {
    size_t operator()(uint64_t pair) const;
  };
  class Word;

  const MergedPair* find_merge(int64_t left, int64_t right) const;
  std::optional<int64_t> character_id(std::string_view character, bool first, bool last) const;
  void split(std::string_view text, Word& word) const;
  bool add_bytes(std::string_view text, Word& word) const;
  void merge_all(Word& word) const;

  BpeOptions options_;
  std::optional<int64_t> unknown_id_;
  std::array<std::optional<int64_t>, 256> byte_ids_;  // of "<0x00>" to "<0xFF>"
  std::unordered_map<uint64_t, MergedPair, PairHash> merges_;
};

}  // namespace remat::tokenizers

#include "tokenizers/sentence_piece.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include <sentencepiece_processor.h>

#include <remat/error.h>

#include "tokenizers/file.h"
#include "tokenizers/pipeline.h"
#include "tokenizers/unicode.h"

namespace remat::tokenizers {
namespace {

class SentencePiece : public Tokenizer {
 public:
  SentencePiece(const std::filesystem::path& file, const ConfigFiles& config) : file_(file) {
    check(processor_.LoadFromSerializedProto(read_file(file)));
    added_ = config.added_tokens();
    if (added_.empty()) added_ = control_tokens();
    for (const AddedToken& token : added_) check_added(token);
    finder_ = AddedTokenFinder(added_);
    find_special_ids(config);
  }

  std::vector<int64_t> encode(std::string_view text) const override {
    std::string repaired;
    if (!is_well_formed(text)) text = repaired = replace_ill_formed(text);
    std::vector<int64_t> ids;
    finder_.split(
        text,
        [&](std::string_view piece) {
          if (piece.size() > std::numeric_limits<int>::max()) {
            throw Error("[tokenizer] a text of " + std::to_string(piece.size()) +
                        " bytes is more than SentencePiece takes, 2147483647; give it in pieces");
          }
          std::vector<int> of_piece;
          check(processor_.Encode(piece, &of_piece));
          ids.insert(ids.end(), of_piece.begin(), of_piece.end());
        },
        [&](const AddedToken& token) { ids.push_back(token.id); });
    return ids;
  }

  std::vector<int64_t> encode_with_special_tokens(std::string_view text) const override {
    std::vector<int64_t> ids = encode(text);
    if (add_bos_ && special_ids_.bos) ids.insert(ids.begin(), *special_ids_.bos);
    if (add_eos_ && special_ids_.eos) ids.push_back(*special_ids_.eos);
    return ids;
  }

  std::string decode(const std::vector<int64_t>& ids) const override {
    std::string text;
    std::vector<int> pieces;
    const auto end_pieces = [&] {
      std::string decoded;
      check(processor_.Decode(pieces, &decoded));
      text += decoded;
      pieces.clear();
    };
    for (const int64_t id : ids) {
      const auto added = contents_.find(id);
      if (added == contents_.end() && (id < 0 || id >= pieces_of_model())) {
        throw Error("[tokenizer] the id " + std::to_string(id) + " is that of no token; those of '" + file_.string() +
                    "' are below " + std::to_string(vocabulary_size()));
      }
      if (added == contents_.end()) {
        pieces.push_back(static_cast<int>(id));
        continue;
      }
      end_pieces();
      text += added->second;
    }
    end_pieces();
    return replace_ill_formed(text);
  }

  int64_t vocabulary_size() const override {
    int64_t size = pieces_of_model();
    for (const AddedToken& token : added_) size = std::max(size, token.id + 1);
    return size;
  }

  std::optional<int64_t> token_id(std::string_view token) const override {
    const auto added = std::ranges::find(added_, token, &AddedToken::content);
    if (added != added_.end()) return added->id;
    const int id = processor_.PieceToId(token);  // that of the unknown token where there is none
    if (id < 0 || id >= pieces_of_model() || processor_.IdToPiece(id) != token) return std::nullopt;
    return id;
  }

  const SpecialIds& special_ids() const override { return special_ids_; }

 private:
  int64_t pieces_of_model() const { return processor_.GetPieceSize(); }

  void check(const sentencepiece::util::Status& status) const {
    if (!status.ok()) refuse_file(file_, "SentencePiece refuses it: " + status.ToString());
  }

  void check_added(const AddedToken& token) {
    const bool of_model = token.id < pieces_of_model();
    if (of_model && processor_.IdToPiece(static_cast<int>(token.id)) != token.content) {
      refuse_file(file_, "the id " + std::to_string(token.id) + " is that of " +
                             shown(processor_.IdToPiece(static_cast<int>(token.id))) + ", and " + shown(token.content) +
                             " is added with it");
    }
    contents_.emplace(token.id, token.content);
  }

  /// Those that SentencePiece does not find in a text.
  std::vector<AddedToken> control_tokens() const {
    std::vector<AddedToken> tokens;
    for (int id = 0; id < processor_.GetPieceSize(); ++id) {
      if (processor_.IsControl(id) || processor_.IsUnknown(id)) {
        tokens.push_back({.content = processor_.IdToPiece(id), .id = id});
      }
    }
    return tokens;
  }

  void find_special_ids(const ConfigFiles& config) {
    const auto name = [&](int id) {
      return id >= 0 && id < pieces_of_model() ? std::optional(processor_.IdToPiece(id)) : std::nullopt;
    };
    SpecialNames usual;
    usual.bos = name(processor_.bos_id());
    usual.eos = name(processor_.eos_id());
    usual.pad = name(processor_.pad_id());
    usual.unk = name(processor_.unk_id());
    special_ids_ = tokenizers::find_special_ids(config.special_names(usual),
                                                [this](std::string_view token) { return token_id(token); });
    add_bos_ = config.flag_or("add_bos_token", true);
    add_eos_ = config.flag_or("add_eos_token", false);
  }

  std::filesystem::path file_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<AddedToken> added_;
  std::unordered_map<int64_t, std::string> contents_;
  AddedTokenFinder finder_{{}};
  SpecialIds special_ids_;
  bool add_bos_ = true, add_eos_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> load_sentence_piece(const std::filesystem::path& file, const ConfigFiles& config) {
  return std::make_unique<SentencePiece>(file, config);
}

}  // namespace remat::tokenizers

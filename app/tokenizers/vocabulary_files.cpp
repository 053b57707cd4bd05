#include "tokenizers/vocabulary_files.h"

#include <algorithm>

#include "tokenizers/bpe.h"
#include "tokenizers/file.h"
#include "tokenizers/pipeline.h"
#include "tokenizers/word_piece.h"

namespace remat::tokenizers {
namespace {

/// Which of two would hold depends on transformers' version.
void check_agree(const Vocabulary& vocabulary, const std::vector<AddedToken>& named) {
  for (const AddedToken& token : named) {
    const auto other = std::ranges::find(named, token.content, &AddedToken::content);
    if (*other == token) continue;
    refuse_file(vocabulary.file().parent_path() / "tokenizer_config.json",
                "or special_tokens_map.json names " + shown(token.content) +
                    " for several roles that differ in lstrip, rstrip, single_word or normalized",
                "write the same for each");
  }
}

/// Those of the configuration, and the named ones, which get the next ids where the vocabulary lacks them.
std::vector<AddedToken> added_tokens(const ConfigFiles& config, const SpecialNames& names,
                                     const Vocabulary& vocabulary) {
  const std::vector<AddedToken> named = config.named_tokens();
  std::vector<AddedToken> of_roles;  // in transformers' order, with those that the files leave out
  for (const auto& name : {names.bos, names.eos, names.unk, names.sep, names.pad, names.cls, names.mask}) {
    if (!name) continue;
    const auto said = std::ranges::find(named, *name, &AddedToken::content);
    of_roles.push_back(said != named.end() ? *said : AddedToken{.content = *name, .id = -1});
  }
  std::vector<AddedToken> tokens = config.added_tokens();
  if (tokens.empty()) check_agree(vocabulary, named);
  add_missing(tokens, of_roles, vocabulary);
  add_missing(tokens, named, vocabulary);
  return tokens;
}

void refuse_added_tokens_json(const std::filesystem::path& directory) {
  const auto file = directory / "added_tokens.json";
  if (std::filesystem::exists(file)) refuse_file(file, "such a file is not read here, a tokenizer.json is");
}

int64_t id_of(const std::vector<AddedToken>& tokens, const std::string& content) {
  return std::ranges::find(tokens, content, &AddedToken::content)->id;
}

void read_merges(const std::filesystem::path& file, Bpe& model) {
  const std::string text = read_text_file(file);
  for (size_t at = 0, number = 1; at < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version") || line.empty()) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      refuse_file(file, "line " + std::to_string(number) + " is " + shown(line) + ", not two tokens");
    }
    model.add_merge(line.substr(0, space), line.substr(space + 1));
  }
}

}  // namespace

std::unique_ptr<Tokenizer> load_bert(const std::filesystem::path& directory, const ConfigFiles& config) {
  config.require_class({"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer"},
                       {"bert", "distilbert", "electra", "mobilebert"});
  refuse_added_tokens_json(directory);
  SpecialNames usual;
  usual.unk = "[UNK]", usual.sep = "[SEP]", usual.pad = "[PAD]", usual.cls = "[CLS]", usual.mask = "[MASK]";
  const SpecialNames names = config.special_names(usual);
  const std::filesystem::path file = directory / "vocab.txt";
  if (!names.unk || !names.cls || !names.sep) {
    refuse_file(directory / "tokenizer_config.json", "BERT needs an unk_token, a cls_token and a sep_token");
  }
  Vocabulary vocabulary = read_vocabulary_lines(file);
  PipelineParts parts;
  parts.added_tokens = added_tokens(config, names, vocabulary);
  parts.normalizer = make_bert_normalizer({.clean_text = true,
                                           .handle_chinese_chars = config.flag_or("tokenize_chinese_chars", true),
                                           .strip_accents = config.flag("strip_accents"),
                                           .lowercase = config.flag_or("do_lower_case", true)});
  parts.pre_tokenizer = make_bert_pre_tokenizer();
  parts.model = std::make_unique<WordPiece>(std::move(vocabulary), WordPieceOptions{.unknown_token = *names.unk});
  parts.decoder = make_word_piece_decoder("##", true);
  parts.surroundings = {{id_of(parts.added_tokens, *names.cls)}, {id_of(parts.added_tokens, *names.sep)}};
  return std::make_unique<Pipeline>(std::move(parts), names);
}

std::unique_ptr<Tokenizer> load_gpt2(const std::filesystem::path& directory, const ConfigFiles& config) {
  config.require_class({"GPT2Tokenizer"}, {"gpt2"});
  refuse_added_tokens_json(directory);
  SpecialNames usual;
  usual.bos = usual.eos = usual.unk = "<|endoftext|>";
  const SpecialNames names = config.special_names(usual);
  Vocabulary vocabulary = read_vocabulary(JsonNode(directory / "vocab.json"));
  PipelineParts parts;
  parts.added_tokens = added_tokens(config, names, vocabulary);
  auto model = std::make_unique<Bpe>(std::move(vocabulary), BpeOptions{});
  read_merges(directory / "merges.txt", *model);
  parts.model = std::move(model);
  parts.pre_tokenizer = make_byte_level_pre_tokenizer(SplitPattern::kGpt2, config.flag_or("add_prefix_space", false));
  parts.decoder = make_byte_level_decoder();
  if (names.bos && config.flag_or("add_bos_token", false)) {
    parts.surroundings.before = {id_of(parts.added_tokens, *names.bos)};
  }
  return std::make_unique<Pipeline>(std::move(parts), names);
}

}  // namespace remat::tokenizers

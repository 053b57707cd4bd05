#include "tokenizers/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include "tokenizers/bpe.h"
#include "tokenizers/file.h"
#include "tokenizers/pipeline.h"
#include "tokenizers/word_piece.h"

namespace remat::tokenizers {
namespace {

/// Old files do not say it.
std::string type_of_model(const JsonNode& model) {
  if (model.find("type")) return model.type();
  if (model.find("merges")) return "BPE";
  if (model.find("max_input_chars_per_word")) return "WordPiece";
  model.refuse("has no field \"type\"");
}

std::unique_ptr<Model> read_word_piece(const JsonNode& node) {
  WordPieceOptions options;
  options.unknown_token = node.text_or("unk_token", options.unknown_token);
  options.continuation_prefix = node.text_or("continuing_subword_prefix", options.continuation_prefix);
  if (const auto most = node.find("max_input_chars_per_word")) options.most_characters = most->integer(0, INT32_MAX);
  return std::make_unique<WordPiece>(read_vocabulary(node.at("vocab")), options);
}

/// "a b", or in newer files ["a", "b"], where tokens may have spaces.
std::pair<std::string, std::string> read_merge(const JsonNode& list, size_t number) {
  const nlohmann::json& merge = list.value()[number];
  const auto refuse = [&] {
    list.refuse("has " + describe(merge) + " as merge " + std::to_string(number) + ", not two tokens");
  };
  if (merge.is_array()) {
    if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) refuse();
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (!merge.is_string()) refuse();
  const auto& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) refuse();
  return {text.substr(0, space), text.substr(space + 1)};
}

std::unique_ptr<Model> read_bpe(const JsonNode& node) {
  if (const auto dropout = node.find("dropout"); dropout && dropout->value() != 0) {
    dropout->refuse("is " + describe(dropout->value()) + ", and merges that are left out at random are not known here");
  }
  BpeOptions options;
  if (const auto unknown = node.find("unk_token")) options.unknown_token = unknown->text();
  options.fuse_unknown = node.flag_or("fuse_unk", false);
  options.byte_fallback = node.flag_or("byte_fallback", false);
  options.ignore_merges = node.flag_or("ignore_merges", false);
  options.continuation_prefix = node.text_or("continuing_subword_prefix", "");
  options.end_suffix = node.text_or("end_of_word_suffix", "");
  auto model = std::make_unique<Bpe>(read_vocabulary(node.at("vocab")), options);
  const JsonNode merges = node.at("merges");
  if (!merges.value().is_array()) merges.refuse("is " + describe(merges.value()) + ", not an array");
  for (size_t i = 0; i < merges.value().size(); ++i) {
    const auto [left, right] = read_merge(merges, i);
    model->add_merge(left, right);
  }
  return model;
}

SpecialNames usual_names(const std::string& type, const JsonNode& model) {
  SpecialNames names;
  if (type == "WordPiece") {
    names.unk = "[UNK]", names.sep = "[SEP]", names.pad = "[PAD]", names.cls = "[CLS]", names.mask = "[MASK]";
  } else if (model.flag_or("byte_fallback", false)) {
    names.bos = "<s>", names.eos = "</s>", names.unk = "<unk>";
  } else {
    names.bos = names.eos = names.unk = "<|endoftext|>";
  }
  return names;
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& file, const ConfigFiles& config) {
  const JsonNode root(file);
  const JsonNode model = root.at("model");
  const std::string type = type_of_model(model);
  PipelineParts parts;
  if (type == "WordPiece") {
    parts.model = read_word_piece(model);
  } else if (type == "BPE") {
    parts.model = read_bpe(model);
  } else {
    model.at("type").refuse("is " + shown(type) + "; WordPiece and BPE are known here");
  }
  parts.normalizer = read_normalizer(root.find("normalizer"));
  parts.pre_tokenizer = read_pre_tokenizer(root.find("pre_tokenizer"));
  if (parts.normalizer && parts.normalizer->removes() && parts.pre_tokenizer->asks_for_first()) {
    root.at("normalizer")
        .refuse(
            "takes characters away, and a Metaspace with the \"prepend_scheme\" \"first\" behind it, "
            "which transformers leaves out where the first of a text was taken, is not known here");
  }
  parts.decoder = read_decoder(root.find("decoder"));
  parts.surroundings = read_post_processor(root.find("post_processor"));
  if (const auto added = root.find("added_tokens")) parts.added_tokens = read_added_tokens(*added);
  add_missing(parts.added_tokens, config.named_tokens(), parts.model->vocabulary());
  return std::make_unique<Pipeline>(std::move(parts),
                                    config.special_names(config.names_of_class().value_or(usual_names(type, model))));
}

}  // namespace remat::tokenizers

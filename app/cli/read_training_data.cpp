#include "cli/read_training_data.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <remat/error.h>

#include "chat/conversations.h"
#include "cli/chat_data.h"
#include "cli/input_file.h"
#include "cli/labelled_text_data.h"
#include "cli/masked_text_data.h"
#include "cli/picture_data.h"
#include "cli/text_data.h"
#include "data/file_error.h"
#include "data/labelled_text.h"
#include "pretrained/model_directory.h"
#include "pretrained/picture_processor.h"
#include "tokenizers/config_files.h"
#include "tokenizers/load_tokenizer.h"

namespace remat::cli {
namespace {

/// The tokenizer of a model's directory, whose tokens the model is known to have.
class ModelTokenizer {
 public:
  explicit ModelTokenizer(const pretrained::ModelDirectory& model)
      : directory_(model.path().string()),
        vocabulary_(model.vocabulary()),
        tokenizer_(tokenizers::load_tokenizer(directory_)) {
    const tokenizers::ConfigFiles config(directory_);
    cuts_left_ = config.is_left("truncation_side");
    pads_left_ = config.is_left("padding_side");
  }

  std::vector<int64_t> encode(std::string_view text) const { return checked(tokenizer_->encode(text)); }

  /// With the special tokens around it, which stay where the text is cut to `most` tokens.
  std::vector<int64_t> encode_example(std::string_view text, int64_t most) const {
    auto tokens = tokenizer_->encode_with_special_tokens(text);
    if (const auto over = std::ssize(tokens) - most; over > 0) {
      const auto& special = tokenizer_->special_ids();
      if (cuts_left_) {
        const auto first = tokens.begin() + (tokens.front() == special.cls ? 1 : 0);
        tokens.erase(first, first + over);
      } else {
        const auto end = tokens.end() - (tokens.back() == special.sep ? 1 : 0);
        tokens.erase(end - over, end);
      }
    }
    return checked(std::move(tokens));
  }

  /// At most `most` tokens of each.
  chat::Conversations encode_conversations(const std::string& path, std::string_view contents, int64_t most) const {
    auto conversations = chat::read_conversations(path, contents, directory_, *tokenizer_, most);
    for (auto& conversation : conversations.examples) conversation.tokens = checked(std::move(conversation.tokens));
    return conversations;
  }

  int64_t padding() const { return tokenizer_->special_ids().pad.value_or(0); }
  bool pads_left() const { return pads_left_; }

  MaskedVocabulary masked_vocabulary() const {
    const auto& special = tokenizer_->special_ids();
    if (!special.cls || !special.sep || !special.mask) {
      throw Error("[train] the tokenizer in '" + directory_ +
                  "' has no [CLS], [SEP] or [MASK], which --task mlm needs; give the directory of a bert");
    }
    checked({*special.cls, *special.sep, *special.mask});
    return {.first = *special.cls, .last = *special.sep, .mask = *special.mask, .size = vocabulary_};
  }

 private:
  std::vector<int64_t> checked(std::vector<int64_t> tokens) const {
    for (const int64_t token : tokens) {
      if (token < vocabulary_) continue;
      throw Error("[train] the tokenizer in '" + directory_ + "' gives token " + std::to_string(token) +
                  ", the model has " + std::to_string(vocabulary_) + "; get a directory whose files belong together");
    }
    return tokens;
  }

  std::string directory_;
  int64_t vocabulary_;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer_;
  bool cuts_left_ = false, pads_left_ = false;
};

void check_positions(const pretrained::ModelDirectory& model, int64_t seq) {
  const auto longest = model.longest();
  if (!longest || seq <= *longest) return;
  throw Error("[train] the model in '" + model.path().string() + "' knows " + std::to_string(*longest) +
              " positions, --seq is " + std::to_string(seq) + "; lower it");
}

/// Those that transformers makes up where nobody has named the classes.
bool are_placeholders(const std::vector<std::string>& names) {
  return std::ranges::all_of(names, [](const auto& name) { return name.starts_with("LABEL_"); });
}

void check_classifier(const pretrained::ModelDirectory& model, const std::string& path, const data::Labels& labels) {
  const auto classes = model.classifier_classes();
  const auto known = model.labels();
  if (!classes) return;
  if (*classes == labels.classes()) {
    if (labels.names == known || are_placeholders(known)) return;
    data::refuse_file(path, "has the labels " + data::list_names(labels.names) + ", and the classifier in '" +
                                model.path().string() + "' knows " + data::list_names(known) +
                                "; give data with these, or a model whose weights have no classifier: it gets a new "
                                "one");
  }
  data::refuse_file(path, "has " + std::to_string(labels.classes()) + " labels, " + data::list_names(labels.names) +
                              ", and the classifier in '" + model.path().string() + "' knows " +
                              std::to_string(*classes) +
                              " classes; give data with the labels of its config.json, or a model whose weights have "
                              "no classifier: it gets a new one");
}

std::unique_ptr<TrainingData> read_text(const TrainSettings& settings, const std::string& path) {
  const int64_t seq = settings.model.seq;
  if (settings.model.directory.empty()) {
    return std::make_unique<TextData>(path, seq, settings.seed, Encode(), predicts_every_token(settings.model));
  }
  const bool masked = settings.model.task == kMaskedTokens;
  const pretrained::ModelDirectory model(
      settings.model.directory, {.task = masked ? pretrained::Task::kMaskedTokens : pretrained::Task::kNextToken,
                                 .dropout = settings.model.dropout});
  check_positions(model, seq);
  const ModelTokenizer tokenizer(model);
  if (learns_conversations(settings.model, path)) {
    const auto contents = read_input(path, {"data", "give a .jsonl file"});
    auto conversations = tokenizer.encode_conversations(path, contents, seq);
    const std::string cut = conversations.cut == 0
                                ? ""
                                : "'" + path + "': " + std::to_string(conversations.cut) + " of " +
                                      std::to_string(conversations.lines) + " conversations are cut to the " +
                                      std::to_string(seq) + " tokens of --seq";
    return std::make_unique<ChatData>(std::move(conversations.examples), std::ssize(contents), settings.batch,
                                      settings.seed, cut);
  }
  const Encode encode = [&](std::string_view text) { return tokenizer.encode(text); };
  if (!masked) return std::make_unique<TextData>(path, seq, settings.seed, encode);
  return std::make_unique<MaskedTextData>(path, seq, settings.seed, tokenizer.masked_vocabulary(), encode);
}

std::unique_ptr<TrainingData> read_pictures_of(const pretrained::ModelDirectory& model, const TrainSettings& settings,
                                               const std::string& path, Split split, const data::Labels& given) {
  const auto processor = pretrained::read_picture_processor(model.path(), model.image());
  auto pictures = read_pictures(settings, path, split, given, model.labels(), processor);
  if (given.empty()) check_classifier(model, path, pictures->labels());
  return pictures;
}

std::unique_ptr<TrainingData> read_labelled_text(const pretrained::ModelDirectory& model, const TrainSettings& settings,
                                                 const std::string& path, const data::Labels& given) {
  const int64_t seq = std::min(settings.model.seq, model.longest().value_or(settings.model.seq));
  const auto contents = read_input(path, {"data", "give a .csv or .jsonl file"});
  const auto examples = data::read_labelled_texts(path, contents, settings.columns);
  auto labels = data::find_labels(path, examples, given.empty() ? model.labels() : given.names);
  if (given.empty()) {
    check_classifier(model, path, labels);
  } else if (labels.names != given.names) {
    labels = given;  // an example has a label that the training has not: the line is named below
  }
  LabelledTokens tokens{.texts = {}, .classes = data::classes_of(path, examples, labels)};
  const ModelTokenizer tokenizer(model);
  tokens.padding = tokenizer.padding();
  tokens.pads_left = tokenizer.pads_left();
  for (const auto& example : examples) tokens.texts.push_back(tokenizer.encode_example(example.text, seq));
  return std::make_unique<LabelledTextData>(std::move(tokens), std::move(labels), contents, settings.batch,
                                            settings.seed);
}

std::unique_ptr<TrainingData> read_data(const TrainSettings& settings, const std::string& path, Split split,
                                        const data::Labels& given) {
  if (settings.model.task != kClassify) return read_text(settings, path);
  if (learns_pictures(settings)) return read_pictures(settings, path, split, given);
  const pretrained::ModelDirectory model(settings.model.directory,
                                         {.task = pretrained::Task::kClassify, .dropout = settings.model.dropout});
  if (model.image() > 0) return read_pictures_of(model, settings, path, split, given);
  return read_labelled_text(model, settings, path, given);
}

}  // namespace

std::unique_ptr<TrainingData> read_training_data(const TrainSettings& settings) {
  return read_data(settings, settings.data, Split::kTraining, {});
}

std::unique_ptr<TrainingData> read_held_out_data(const TrainSettings& settings, const data::Labels& labels) {
  return read_data(settings, settings.held_out, Split::kTest, labels);
}

}  // namespace remat::cli

#include <array>

#include "pretrained/families.h"
#include "zoo/bert.h"

namespace remat::pretrained {
namespace {

constexpr std::array<Renaming, 17> kBertNames = {{{"tokens", "bert.embeddings.word_embeddings"},
                                                  {"positions", "bert.embeddings.position_embeddings"},
                                                  {"types", "bert.embeddings.token_type_embeddings"},
                                                  {"norm", "bert.embeddings.LayerNorm"},
                                                  {"layer*.query", "bert.encoder.layer.*.attention.self.query"},
                                                  {"layer*.key", "bert.encoder.layer.*.attention.self.key"},
                                                  {"layer*.value", "bert.encoder.layer.*.attention.self.value"},
                                                  {"layer*.proj", "bert.encoder.layer.*.attention.output.dense"},
                                                  {"layer*.norm1", "bert.encoder.layer.*.attention.output.LayerNorm"},
                                                  {"layer*.up", "bert.encoder.layer.*.intermediate.dense"},
                                                  {"layer*.down", "bert.encoder.layer.*.output.dense"},
                                                  {"layer*.norm2", "bert.encoder.layer.*.output.LayerNorm"},
                                                  {"pool", "bert.pooler.dense"},
                                                  {"classify", "classifier"},
                                                  {"predict", "cls.predictions"},
                                                  {"predict.transform", "cls.predictions.transform.dense"},
                                                  {"predict.norm", "cls.predictions.transform.LayerNorm"}}};

constexpr std::array<Renaming, 17> kRobertaNames = {
    {{"tokens", "roberta.embeddings.word_embeddings"},
     {"positions", "roberta.embeddings.position_embeddings"},
     {"types", "roberta.embeddings.token_type_embeddings"},
     {"norm", "roberta.embeddings.LayerNorm"},
     {"layer*.query", "roberta.encoder.layer.*.attention.self.query"},
     {"layer*.key", "roberta.encoder.layer.*.attention.self.key"},
     {"layer*.value", "roberta.encoder.layer.*.attention.self.value"},
     {"layer*.proj", "roberta.encoder.layer.*.attention.output.dense"},
     {"layer*.norm1", "roberta.encoder.layer.*.attention.output.LayerNorm"},
     {"layer*.up", "roberta.encoder.layer.*.intermediate.dense"},
     {"layer*.down", "roberta.encoder.layer.*.output.dense"},
     {"layer*.norm2", "roberta.encoder.layer.*.output.LayerNorm"},
     {"pool", "classifier.dense"},
     {"classify", "classifier.out_proj"},
     {"predict", "lm_head"},
     {"predict.transform", "lm_head.dense"},
     {"predict.norm", "lm_head.layer_norm"}}};

constexpr std::array<Renaming, 16> kDistilBertNames = {
    {{"tokens", "distilbert.embeddings.word_embeddings"},
     {"positions", "distilbert.embeddings.position_embeddings"},
     {"norm", "distilbert.embeddings.LayerNorm"},
     {"layer*.query", "distilbert.transformer.layer.*.attention.q_lin"},
     {"layer*.key", "distilbert.transformer.layer.*.attention.k_lin"},
     {"layer*.value", "distilbert.transformer.layer.*.attention.v_lin"},
     {"layer*.proj", "distilbert.transformer.layer.*.attention.out_lin"},
     {"layer*.norm1", "distilbert.transformer.layer.*.sa_layer_norm"},
     {"layer*.up", "distilbert.transformer.layer.*.ffn.lin1"},
     {"layer*.down", "distilbert.transformer.layer.*.ffn.lin2"},
     {"layer*.norm2", "distilbert.transformer.layer.*.output_layer_norm"},
     {"pool", "pre_classifier"},
     {"classify", "classifier"},
     {"predict", "vocab_projector"},
     {"predict.transform", "vocab_transform"},
     {"predict.norm", "vocab_layer_norm"}}};

void check_encoder(const ConfigFile& config, const LoadOptions& options) {
  expect_task(config, options, {Task::kMaskedTokens, Task::kClassify});
  config.expect("is_decoder", {false});
  config.expect("add_cross_attention", {false});
  config.expect("position_embedding_type", {"absolute"});
  config.expect("tie_word_embeddings", {true});
  if (options.task == Task::kClassify) config.expect("problem_type", {"single_label_classification"});
}

Description description_of(const zoo::BertConfig& bert, int64_t longest) {
  return {.make = [bert] { return zoo::make_bert(bert); },
          .parameters = zoo::parameter_count(bert),
          .layers = bert.layers,
          .vocabulary = bert.vocab,
          .longest = longest};
}

/// A BERT or a RoBERTa.
zoo::BertConfig describe_bert_like(const ConfigFile& config, const LoadOptions& options, int64_t vocab,
                                   int64_t padding) {
  check_encoder(config, options);
  config.expect("hidden_act", {"gelu"});
  const double dropout = config.number("hidden_dropout_prob", 0.1);
  return {.layers = config.count("num_hidden_layers", 12),
          .width = config.count("hidden_size", 768),
          .heads = config.count("num_attention_heads", 12),
          .hidden = config.count("intermediate_size", 3072),
          .seq = config.count("max_position_embeddings", 512),
          .vocab = config.count("vocab_size", vocab),
          .padding = config.token("pad_token_id", padding),
          .types = config.count("type_vocab_size", 2),
          .classes = options.classes(),
          .dropout = options.dropout.value_or(dropout),
          .attention_dropout = options.dropout.value_or(config.number("attention_probs_dropout_prob", 0.1)),
          .classifier_dropout = options.dropout.value_or(config.number("classifier_dropout", dropout)),
          .norm_eps = config.number("layer_norm_eps", 1e-12),
          .head = options.task == Task::kClassify ? zoo::BertHead::kClassify : zoo::BertHead::kMaskedTokens};
}

Description describe_bert(const ConfigFile& config, const LoadOptions& options) {
  const auto bert = describe_bert_like(config, options, 30522, 0);
  return description_of(bert, bert.seq);
}

Description describe_roberta(const ConfigFile& config, const LoadOptions& options) {
  auto roberta = describe_bert_like(config, options, 50265, 1);
  roberta.drops_pooled_input = true;
  roberta.positions_after_padding = true;
  if (!roberta.padding || *roberta.padding + 1 >= roberta.seq) {
    config.refuse("has no \"pad_token_id\" below \"max_position_embeddings\", after which positions begin");
  }
  return description_of(roberta, roberta.seq - *roberta.padding - 1);
}

Description describe_distilbert(const ConfigFile& config, const LoadOptions& options) {
  check_encoder(config, options);
  config.expect("activation", {"gelu"});
  config.expect("sinusoidal_pos_embds", {false});
  config.expect("tie_weights_", {true});
  const zoo::BertConfig bert = {
      .layers = config.count("n_layers", 6),
      .width = config.count("dim", 768),
      .heads = config.count("n_heads", 12),
      .hidden = config.count("hidden_dim", 3072),
      .seq = config.count("max_position_embeddings", 512),
      .vocab = config.count("vocab_size", 30522),
      .padding = config.token("pad_token_id", 0),
      .types = 0,
      .classes = options.classes(),
      .dropout = options.dropout.value_or(config.number("dropout", 0.1)),
      .attention_dropout = options.dropout.value_or(config.number("attention_dropout", 0.1)),
      .classifier_dropout = options.dropout.value_or(config.number("seq_classif_dropout", 0.2)),
      .norm_eps = 1e-12,
      .head = options.task == Task::kClassify ? zoo::BertHead::kClassify : zoo::BertHead::kMaskedTokens,
      .drops_attended = false,
      .pools_by_relu = true};
  return description_of(bert, bert.seq);
}

constexpr std::array<const char*, 4> kClassifier = {"pool.weight", "pool.bias", "classify.weight", "classify.bias"};
constexpr std::array<const char*, 5> kPredictor = {"predict.bias", "predict.transform.weight", "predict.transform.bias",
                                                   "predict.norm.weight", "predict.norm.bias"};

std::span<const char* const> encoder_head(Task task) {
  if (task == Task::kClassify) return kClassifier;
  return kPredictor;
}

constexpr std::array<std::string_view, 6> kBertIgnored = {"*position_ids", "cls.",         "classifier.",
                                                          "qa_outputs.",   "bert.pooler.", "pooler."};
constexpr std::array<std::string_view, 6> kRobertaIgnored = {"*position_ids", "lm_head.",        "classifier.",
                                                             "qa_outputs.",   "roberta.pooler.", "pooler."};
constexpr std::array<std::string_view, 5> kDistilBertIgnored = {"*position_ids", "vocab_", "classifier.",
                                                                "pre_classifier.", "qa_outputs."};

constexpr std::array<Family, 3> kEncoderFamilies = {
    {{"bert", describe_bert, kBertNames, "bert.", "BertForMaskedLM", "BertForSequenceClassification", encoder_head,
      kBertIgnored, "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
     {"roberta", describe_roberta, kRobertaNames, "roberta.", "RobertaForMaskedLM", "RobertaForSequenceClassification",
      encoder_head, kRobertaIgnored, "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
     {"distilbert", describe_distilbert, kDistilBertNames, "distilbert.", "DistilBertForMaskedLM",
      "DistilBertForSequenceClassification", encoder_head, kDistilBertIgnored, "vocab_projector.weight",
      "distilbert.embeddings.word_embeddings.weight"}}};

}  // namespace

std::span<const Family> encoder_families() { return kEncoderFamilies; }

}  // namespace remat::pretrained

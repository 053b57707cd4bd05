#include "pretrained/families.h"

#include <algorithm>
#include <array>

#include "zoo/bert.h"
#include "zoo/gpt.h"
#include "zoo/llama.h"
#include "zoo/vit.h"

namespace remat::pretrained {
namespace {

std::string name_of(Task task) {
  if (task == Task::kNextToken) return "next-token";
  return task == Task::kMaskedTokens ? "mlm" : "classify";
}

void expect_task(const ConfigFile& config, const LoadOptions& options, std::initializer_list<Task> known) {
  std::string names;
  for (const Task task : known) {
    if (task == options.task) return;
    names += (names.empty() ? "" : " or ") + name_of(task);
  }
  config.refuse("describes a " + config.text("model_type") + ", which remat trains for the task " + names + ", not " +
                name_of(options.task));
}

// ---- GPT-2 ----

constexpr std::array<Renaming, 9> kGpt2Names = {{{"tokens", "transformer.wte"},
                                                 {"positions", "transformer.wpe"},
                                                 {"norm", "transformer.ln_f"},
                                                 {"block*.norm1", "transformer.h.*.ln_1"},
                                                 {"block*.qkv", "transformer.h.*.attn.c_attn", /*transposed=*/true},
                                                 {"block*.proj", "transformer.h.*.attn.c_proj", /*transposed=*/true},
                                                 {"block*.norm2", "transformer.h.*.ln_2"},
                                                 {"block*.up", "transformer.h.*.mlp.c_fc", /*transposed=*/true},
                                                 {"block*.down", "transformer.h.*.mlp.c_proj", /*transposed=*/true}}};

Description describe_gpt2(const ConfigFile& config, const LoadOptions& options) {
  expect_task(config, options, {Task::kNextToken});
  config.expect("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  config.expect("scale_attn_weights", {true});
  config.expect("scale_attn_by_inverse_layer_idx", {false});
  config.expect("add_cross_attention", {false});
  config.expect("tie_word_embeddings", {true});
  const double dropout = config.number("resid_pdrop", 0.1);
  if (!options.dropout && config.number("embd_pdrop", 0.1) != dropout) {
    config.refuse("has other numbers for \"embd_pdrop\" and \"resid_pdrop\", and remat's model has one for both");
  }
  const zoo::GptConfig gpt = {.layers = config.count("n_layer", 12),
                              .width = config.count("n_embd", 768),
                              .heads = config.count("n_head", 12),
                              .seq = config.count("n_positions", 1024),
                              .vocab = config.count("vocab_size", 50257),
                              .hidden = config.count("n_inner", 4 * config.count("n_embd", 768)),
                              .dropout = options.dropout.value_or(dropout),
                              .attention_dropout = options.dropout.value_or(config.number("attn_pdrop", 0.1)),
                              .norm_eps = config.number("layer_norm_epsilon", 1e-5)};
  return {.make = [gpt] { return zoo::make_gpt(gpt); },
          .parameters = zoo::parameter_count(gpt),
          .layers = gpt.layers,
          .vocabulary = gpt.vocab,
          .longest = gpt.seq};
}

// ---- Llama ----

constexpr std::array<Renaming, 12> kLlamaNames = {{{"tokens", "model.embed_tokens"},
                                                   {"norm", "model.norm"},
                                                   {"output", "lm_head"},
                                                   {"block*.norm1", "model.layers.*.input_layernorm"},
                                                   {"block*.query", "model.layers.*.self_attn.q_proj"},
                                                   {"block*.key", "model.layers.*.self_attn.k_proj"},
                                                   {"block*.value", "model.layers.*.self_attn.v_proj"},
                                                   {"block*.proj", "model.layers.*.self_attn.o_proj"},
                                                   {"block*.norm2", "model.layers.*.post_attention_layernorm"},
                                                   {"block*.gate", "model.layers.*.mlp.gate_proj"},
                                                   {"block*.up", "model.layers.*.mlp.up_proj"},
                                                   {"block*.down", "model.layers.*.mlp.down_proj"}}};

/// Rotary positions: "rope_parameters" since version 5 of transformers, "rope_theta" and "rope_scaling" before.
void describe_rotation(const ConfigFile& config, zoo::LlamaConfig& llama) {
  llama.rope_theta = config.number("rope_theta", 10000);
  const auto* const name = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.has(name)) return;
  const ConfigFile rope = config.object(name);
  llama.rope_theta = rope.number("rope_theta", llama.rope_theta);
  const auto kind = rope.has("rope_type") ? "rope_type" : "type";
  rope.expect(kind, {"default", "llama3"});
  if (!rope.has(kind) || rope.text(kind) == "default") return;
  const zoo::RopeScaling usual;
  llama.rope_scaling = {.factor = rope.number("factor", usual.factor),
                        .low_frequency = rope.number("low_freq_factor", usual.low_frequency),
                        .high_frequency = rope.number("high_freq_factor", usual.high_frequency),
                        .trained_seq = rope.count("original_max_position_embeddings", usual.trained_seq)};
}

Description describe_llama(const ConfigFile& config, const LoadOptions& options) {
  expect_task(config, options, {Task::kNextToken});
  config.expect("hidden_act", {"silu"});
  config.expect("attention_bias", {false});
  config.expect("mlp_bias", {false});
  config.expect("attention_dropout", {0, 0.0});
  config.expect("tie_word_embeddings", {true, false});
  const int64_t width = config.count("hidden_size", 4096), heads = config.count("num_attention_heads", 32);
  zoo::LlamaConfig llama = {.layers = config.count("num_hidden_layers", 32),
                            .width = width,
                            .heads = heads,
                            .key_heads = config.count("num_key_value_heads", heads),
                            .head_width = config.count("head_dim", std::max<int64_t>(1, width / heads)),
                            .hidden = config.count("intermediate_size", 11008),
                            .vocab = config.count("vocab_size", 32000),
                            .padding = config.token("pad_token_id", std::nullopt),
                            .norm_eps = config.number("rms_norm_eps", 1e-6),
                            .tied = config.flag("tie_word_embeddings", false)};
  describe_rotation(config, llama);
  return {.make = [llama] { return zoo::make_llama(llama); },
          .parameters = zoo::parameter_count(llama),
          .layers = llama.layers,
          .vocabulary = llama.vocab,
          .longest = std::nullopt};
}

// ---- BERT ----

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

Description describe_bert(const ConfigFile& config, const LoadOptions& options) {
  expect_task(config, options, {Task::kMaskedTokens, Task::kClassify});
  config.expect("hidden_act", {"gelu"});
  config.expect("is_decoder", {false});
  config.expect("add_cross_attention", {false});
  config.expect("position_embedding_type", {"absolute"});
  config.expect("tie_word_embeddings", {true});
  if (options.task == Task::kClassify) config.expect("problem_type", {"single_label_classification"});
  const double dropout = config.number("hidden_dropout_prob", 0.1);
  const zoo::BertConfig bert = {
      .layers = config.count("num_hidden_layers", 12),
      .width = config.count("hidden_size", 768),
      .heads = config.count("num_attention_heads", 12),
      .hidden = config.count("intermediate_size", 3072),
      .seq = config.count("max_position_embeddings", 512),
      .vocab = config.count("vocab_size", 30522),
      .padding = config.token("pad_token_id", 0),
      .types = config.count("type_vocab_size", 2),
      .classes = options.classes(),
      .dropout = options.dropout.value_or(dropout),
      .attention_dropout = options.dropout.value_or(config.number("attention_probs_dropout_prob", 0.1)),
      .classifier_dropout = options.dropout.value_or(config.number("classifier_dropout", dropout)),
      .norm_eps = config.number("layer_norm_eps", 1e-12),
      .head = options.task == Task::kClassify ? zoo::BertHead::kClassify : zoo::BertHead::kMaskedTokens};
  return {.make = [bert] { return zoo::make_bert(bert); },
          .parameters = zoo::parameter_count(bert),
          .layers = bert.layers,
          .vocabulary = bert.vocab,
          .longest = bert.seq};
}

// ---- ViT ----

constexpr std::array<Renaming, 13> kVitNames = {{{"class_token", "vit.embeddings.cls_token"},
                                                 {"positions", "vit.embeddings.position_embeddings"},
                                                 {"patches", "vit.embeddings.patch_embeddings.projection"},
                                                 {"norm", "vit.layernorm"},
                                                 {"block*.norm1", "vit.encoder.layer.*.layernorm_before"},
                                                 {"block*.query", "vit.encoder.layer.*.attention.attention.query"},
                                                 {"block*.key", "vit.encoder.layer.*.attention.attention.key"},
                                                 {"block*.value", "vit.encoder.layer.*.attention.attention.value"},
                                                 {"block*.proj", "vit.encoder.layer.*.attention.output.dense"},
                                                 {"block*.norm2", "vit.encoder.layer.*.layernorm_after"},
                                                 {"block*.up", "vit.encoder.layer.*.intermediate.dense"},
                                                 {"block*.down", "vit.encoder.layer.*.output.dense"},
                                                 {"classify", "classifier"}}};

Description describe_vit(const ConfigFile& config, const LoadOptions& options) {
  expect_task(config, options, {Task::kClassify});
  config.expect("problem_type", {"single_label_classification"});
  config.expect("hidden_act", {"gelu"});
  config.expect("qkv_bias", {true});
  config.expect("num_channels", {3});
  config.expect("layer_norm_eps", {1e-12});
  config.expect("attention_probs_dropout_prob", {0, 0.0});
  const zoo::VitConfig vit = {.image = config.count("image_size", 224),
                              .patch = config.count("patch_size", 16),
                              .layers = config.count("num_hidden_layers", 12),
                              .width = config.count("hidden_size", 768),
                              .heads = config.count("num_attention_heads", 12),
                              .hidden = config.count("intermediate_size", 3072),
                              .classes = options.classes(),
                              .dropout = options.dropout.value_or(config.number("hidden_dropout_prob", 0))};
  return {.make = [vit] { return zoo::make_vit(vit); },
          .parameters = zoo::parameter_count(vit),
          .layers = vit.layers,
          .vocabulary = 0,
          .longest = std::nullopt,
          .image = vit.image};
}

constexpr std::array<const char*, 2> kVitClassifier = {"classify.weight", "classify.bias"};
constexpr std::array<const char*, 4> kBertClassifier = {"pool.weight", "pool.bias", "classify.weight", "classify.bias"};
constexpr std::array<const char*, 5> kBertPredictor = {
    "predict.bias", "predict.transform.weight", "predict.transform.bias", "predict.norm.weight", "predict.norm.bias"};

std::span<const char* const> no_head(Task /*task*/) { return {}; }
std::span<const char* const> bert_head(Task task) {
  if (task == Task::kClassify) return kBertClassifier;
  return kBertPredictor;
}

std::span<const char* const> vit_head(Task /*task*/) { return kVitClassifier; }

constexpr std::array<std::string_view, 8> kGpt2Ignored = {
    "*.attn.bias", "*.attn.masked_bias", "*.crossattention.bias", "*position_ids",
    "score.",      "classifier.",        "qa_outputs.",           "multiple_choice_head."};
constexpr std::array<std::string_view, 4> kLlamaIgnored = {"*rotary_emb.inv_freq", "*position_ids", "score.",
                                                           "qa_outputs."};
constexpr std::array<std::string_view, 6> kBertIgnored = {"*position_ids", "cls.",         "classifier.",
                                                          "qa_outputs.",   "bert.pooler.", "pooler."};

constexpr std::array<std::string_view, 3> kVitIgnored = {"classifier.", "vit.pooler.", "pooler."};

constexpr std::array<Family, 4> kFamilies = {
    {{"gpt2", describe_gpt2, kGpt2Names, "transformer.", "GPT2LMHeadModel", "", no_head, kGpt2Ignored, "lm_head.weight",
      "transformer.wte.weight"},
     {"llama", describe_llama, kLlamaNames, "model.", "LlamaForCausalLM", "", no_head, kLlamaIgnored, "lm_head.weight",
      "model.embed_tokens.weight"},
     {"bert", describe_bert, kBertNames, "bert.", "BertForMaskedLM", "BertForSequenceClassification", bert_head,
      kBertIgnored, "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
     {"vit", describe_vit, kVitNames, "vit.", "", "ViTForImageClassification", vit_head, kVitIgnored, "", ""}}};

}  // namespace

const Family* find_family(std::string_view kind) {
  for (const Family& family : kFamilies) {
    if (family.kind == kind) return &family;
  }
  return nullptr;
}

std::string list_families() {
  std::string names;
  for (const Family& family : kFamilies) names += (names.empty() ? "" : ", ") + std::string(family.kind);
  return names;
}

}  // namespace remat::pretrained

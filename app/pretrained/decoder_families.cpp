#include <algorithm>
#include <array>
#include <cmath>

#include <remat/error.h>

#include <remat/support/number_text.h>
#include "pretrained/families.h"
#include "pretrained/rotary_settings.h"
#include "zoo/decoder.h"
#include "zoo/gpt.h"

namespace remat::pretrained {
namespace {

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

// ---- Llama, and what differs from it in settings ----

constexpr std::array<Renaming, 18> kLlamaNames = {
    {{"tokens", "model.embed_tokens"},
     {"norm", "model.norm"},
     {"output", "lm_head"},
     {"block*.norm1", "model.layers.*.input_layernorm"},
     {"block*.norm2", "model.layers.*.post_attention_layernorm"},
     {"block*.query", "model.layers.*.self_attn.q_proj"},
     {"block*.key", "model.layers.*.self_attn.k_proj"},
     {"block*.value", "model.layers.*.self_attn.v_proj"},
     {"block*.qkv", "model.layers.*.self_attn.qkv_proj"},
     {"block*.query_norm", "model.layers.*.self_attn.q_norm"},
     {"block*.key_norm", "model.layers.*.self_attn.k_norm"},
     {"block*.proj", "model.layers.*.self_attn.o_proj"},
     {"block*.gate", "model.layers.*.mlp.gate_proj"},
     {"block*.up", "model.layers.*.mlp.up_proj"},
     {"block*.gate_up", "model.layers.*.mlp.gate_up_proj"},
     {"block*.down", "model.layers.*.mlp.down_proj"},
     {"block*.attention_norm", "model.layers.*.post_attention_layernorm"},
     {"block*.feedforward_norm", "model.layers.*.post_feedforward_layernorm"}}};

/// Of blocks with norms behind their branches, too.
constexpr auto kGemma2Names = [] {
  auto names = kLlamaNames;
  for (auto& name : names) {
    if (name.ours == "block*.norm2") name.theirs = "model.layers.*.pre_feedforward_layernorm";
  }
  return names;
}();

/// What all have: sizes, of which those of `usual` hold where config.json says nothing. `activation`: the one that is
/// known, by the names that `activation_name` has for it.
zoo::DecoderConfig describe_sizes(const ConfigFile& config, const LoadOptions& options, zoo::DecoderConfig usual) {
  expect_task(config, options, {Task::kNextToken});
  config.expect("attention_dropout", {0, 0.0});
  config.expect("tie_word_embeddings", {true, false});
  if (options.dropout.value_or(0) != 0) {
    throw Error("[pretrained] a " + config.text("model_type") + " has no dropout, and " +
                support::short_text(*options.dropout) + " is asked for; leave it out");
  }
  zoo::DecoderConfig decoder = std::move(usual);
  decoder.layers = config.count("num_hidden_layers", decoder.layers);
  decoder.width = config.count("hidden_size", decoder.width);
  decoder.heads = config.count("num_attention_heads", decoder.heads);
  // 0: as many as heads, and the width divided among them.
  const int64_t key_heads = decoder.key_heads > 0 ? decoder.key_heads : decoder.heads;
  decoder.key_heads = config.nullable_count("num_key_value_heads", key_heads).value_or(decoder.heads);
  const int64_t divided = std::max<int64_t>(1, decoder.width / decoder.heads);
  const int64_t head_width = decoder.head_width > 0 ? decoder.head_width : divided;
  decoder.head_width = config.nullable_count("head_dim", head_width).value_or(divided);
  decoder.hidden = config.count("intermediate_size", decoder.hidden);
  decoder.vocab = config.count("vocab_size", decoder.vocab);
  decoder.padding = config.token("pad_token_id", decoder.padding);
  decoder.norm_eps = config.number("rms_norm_eps", decoder.norm_eps);
  decoder.tied = config.flag("tie_word_embeddings", decoder.tied);
  return decoder;
}

Description description_of(const zoo::DecoderConfig& decoder) {
  return {.make = [decoder] { return zoo::make_decoder(decoder); },
          .parameters = zoo::parameter_count(decoder),
          .layers = decoder.layers,
          .vocabulary = decoder.vocab,
          .longest = std::nullopt};
}

/// Of heads that are rotated whole.
void describe_positions(const ConfigFile& config, zoo::DecoderConfig& decoder) {
  decoder.rotary = describe_rotary(config, decoder.head_width);
  if (decoder.rotary.width != decoder.head_width) {
    config.refuse("has a \"partial_rotary_factor\" below 1, which remat's model of that kind cannot compute");
  }
}

void describe_biases(const ConfigFile& config, zoo::DecoderConfig& decoder) {
  decoder.qkv_bias = decoder.projection_bias = config.flag("attention_bias", false);
}

/// All layers have a window, or none has.
void describe_window(const ConfigFile& config, std::optional<int64_t> usual, zoo::DecoderConfig& decoder) {
  const auto window = config.nullable_count("sliding_window", usual);
  if (!window) return;
  decoder.window = *window;
  decoder.windowed.assign(static_cast<size_t>(decoder.layers), true);
}

/// Layers have windows as "layer_types" says, or where it does not, as `usual` does of a layer's number.
void describe_windows(const ConfigFile& config, std::optional<int64_t> window,
                      bool (*usual)(int64_t layer, int64_t period), int64_t period, zoo::DecoderConfig& decoder) {
  std::vector<bool> windowed;
  if (config.has("layer_types")) {
    const auto& types = config.json().at("layer_types");
    if (!types.is_array() || std::ssize(types) != decoder.layers) {
      config.refuse("has a \"layer_types\" that is no list of " + std::to_string(decoder.layers) + " layers");
    }
    for (const auto& type : types) {
      if (type != "full_attention" && type != "sliding_attention") {
        config.refuse("has " + type.dump() + " in \"layer_types\"; there are full_attention and sliding_attention");
      }
      windowed.push_back(type == "sliding_attention");
    }
  } else {
    for (int64_t i = 0; i < decoder.layers; ++i) windowed.push_back(usual(i, period));
  }
  if (std::ranges::find(windowed, true) == windowed.end()) return;
  if (!window) config.refuse("has layers with a window, and no number for \"sliding_window\"");
  decoder.window = *window;
  decoder.windowed = std::move(windowed);
}

Description describe_llama(const ConfigFile& config, const LoadOptions& options) {
  config.expect("hidden_act", {"silu"});
  auto llama = describe_sizes(config, options,
                              {.layers = 32,
                               .width = 4096,
                               .heads = 32,
                               .key_heads = 0,
                               .head_width = 0,
                               .hidden = 11008,
                               .vocab = 32000,
                               .norm_eps = 1e-6,
                               .tied = false});
  describe_positions(config, llama);
  describe_biases(config, llama);
  llama.feedforward_bias = config.flag("mlp_bias", false);
  return description_of(llama);
}

Description describe_mistral(const ConfigFile& config, const LoadOptions& options) {
  config.expect("hidden_act", {"silu"});
  if (config.has("layer_types")) config.refuse("has \"layer_types\", which a mistral does not read");
  auto mistral = describe_sizes(config, options,
                                {.layers = 32,
                                 .width = 4096,
                                 .heads = 32,
                                 .key_heads = 8,
                                 .head_width = 0,
                                 .hidden = 14336,
                                 .vocab = 32000,
                                 .norm_eps = 1e-6,
                                 .tied = false});
  describe_positions(config, mistral);
  describe_window(config, 4096, mistral);
  return description_of(mistral);
}

/// Qwen 2 and 3 begin with layers that see everything.
zoo::DecoderConfig describe_qwen(const ConfigFile& config, const LoadOptions& options, int64_t head_width) {
  config.expect("hidden_act", {"silu"});
  auto qwen = describe_sizes(config, options,
                             {.layers = 32,
                              .width = 4096,
                              .heads = 32,
                              .key_heads = 32,
                              .head_width = head_width,
                              .hidden = 22016,
                              .vocab = 151936,
                              .norm_eps = 1e-6,
                              .tied = false});
  describe_positions(config, qwen);
  const auto window =
      config.flag("use_sliding_window", false) ? config.nullable_count("sliding_window", 4096) : std::nullopt;
  const int64_t first = window ? static_cast<int64_t>(config.number("max_window_layers", 28)) : qwen.layers;
  describe_windows(
      config, window, [](int64_t layer, int64_t from) { return layer >= from; }, first, qwen);
  return qwen;
}

Description describe_qwen2(const ConfigFile& config, const LoadOptions& options) {
  auto qwen = describe_qwen(config, options, /*head_width=*/0);
  qwen.qkv_bias = true;
  return description_of(qwen);
}

Description describe_qwen3(const ConfigFile& config, const LoadOptions& options) {
  auto qwen = describe_qwen(config, options, /*head_width=*/128);
  describe_biases(config, qwen);
  qwen.query_norms = true;
  return description_of(qwen);
}

Description describe_phi3(const ConfigFile& config, const LoadOptions& options) {
  config.expect("hidden_act", {"silu"});
  config.expect("resid_pdrop", {0, 0.0});
  config.expect("embd_pdrop", {0, 0.0});
  auto phi = describe_sizes(config, options,
                            {.layers = 32,
                             .width = 3072,
                             .heads = 32,
                             .key_heads = 0,
                             .head_width = 0,
                             .hidden = 8192,
                             .vocab = 32064,
                             .padding = 32000,
                             .norm_eps = 1e-5,
                             .tied = false});
  phi.rotary = describe_rotary(config, phi.head_width);
  if (std::holds_alternative<zoo::LongScaling>(phi.rotary.scaling)) config.count("original_max_position_embeddings");
  phi.fused = true;
  describe_window(config, std::nullopt, phi);
  return description_of(phi);
}

/// Gemma 1, and what 2 and 3 have of it.
zoo::DecoderConfig describe_gemma_like(const ConfigFile& config, const LoadOptions& options, zoo::DecoderConfig usual) {
  config.expect("use_bidirectional_attention", {false});
  usual.padding = 0;
  usual.norm_eps = 1e-6;
  auto gemma = describe_sizes(config, options, std::move(usual));
  describe_biases(config, gemma);
  gemma.norms_about_one = true;
  gemma.activation = zoo::GateActivation::kGeluTanh;
  gemma.embedding_scale = std::sqrt(static_cast<double>(gemma.width));
  return gemma;
}

Description describe_gemma(const ConfigFile& config, const LoadOptions& options) {
  config.expect("hidden_act", {"gelu", "gelu_pytorch_tanh"});  // the first one of old files means the second
  config.expect("hidden_activation", {"gelu_pytorch_tanh"});
  auto gemma = describe_gemma_like(
      config, options,
      {.layers = 28, .width = 3072, .heads = 16, .key_heads = 16, .head_width = 256, .hidden = 24576, .vocab = 256000});
  describe_positions(config, gemma);
  return description_of(gemma);
}

zoo::DecoderConfig describe_gemma2_like(const ConfigFile& config, const LoadOptions& options, int64_t vocab,
                                        int64_t period) {
  config.expect("hidden_activation", {"gelu_pytorch_tanh"});
  auto gemma = describe_gemma_like(
      config, options,
      {.layers = 26, .width = 2304, .heads = 8, .key_heads = 4, .head_width = 256, .hidden = 9216, .vocab = vocab});
  gemma.branch_norms = true;
  gemma.attention_scale = 1 / std::sqrt(config.number("query_pre_attn_scalar", 256));
  describe_windows(
      config, config.nullable_count("sliding_window", 4096),
      [](int64_t layer, int64_t every) { return (layer + 1) % every != 0; }, period, gemma);
  return gemma;
}

Description describe_gemma2(const ConfigFile& config, const LoadOptions& options) {
  auto gemma = describe_gemma2_like(config, options, 256000, 2);
  describe_positions(config, gemma);
  gemma.attention_cap = config.nullable_number("attn_logit_softcapping", 50).value_or(0);
  gemma.logit_cap = config.nullable_number("final_logit_softcapping", 30).value_or(0);
  return description_of(gemma);
}

Description describe_gemma3(const ConfigFile& config, const LoadOptions& options) {
  config.expect("attn_logit_softcapping", {});  // transformers does not read it
  auto gemma = describe_gemma2_like(config, options, 262208, config.count("sliding_window_pattern", 6));
  const auto [whole, window] = describe_two_rotaries(config, gemma.head_width);
  if (whole.width != gemma.head_width || window.width != gemma.head_width) {
    config.refuse("has a \"partial_rotary_factor\" below 1, which remat's model of that kind cannot compute");
  }
  gemma.rotary = whole;
  gemma.window_rotary = window;
  gemma.query_norms = true;
  gemma.logit_cap = config.nullable_number("final_logit_softcapping", std::nullopt).value_or(0);
  return description_of(gemma);
}

constexpr std::array<std::string_view, 8> kGpt2Ignored = {
    "*.attn.bias", "*.attn.masked_bias", "*.crossattention.bias", "*position_ids",
    "score.",      "classifier.",        "qa_outputs.",           "multiple_choice_head."};
constexpr std::array<std::string_view, 4> kLlamaIgnored = {"*rotary_emb.inv_freq", "*position_ids", "score.",
                                                           "qa_outputs."};

std::span<const char* const> no_head(Task /*task*/) { return {}; }

using Describe = Description (*)(const ConfigFile&, const LoadOptions&);

constexpr Family like_llama(std::string_view kind, Describe describe, std::span<const Renaming> names,
                            std::string_view predicting) {
  return {kind, describe, names,         "model.",         predicting,
          "",   no_head,  kLlamaIgnored, "lm_head.weight", "model.embed_tokens.weight"};
}

constexpr std::array<Family, 9> kDecoderFamilies = {
    {{"gpt2", describe_gpt2, kGpt2Names, "transformer.", "GPT2LMHeadModel", "", no_head, kGpt2Ignored, "lm_head.weight",
      "transformer.wte.weight"},
     like_llama("llama", describe_llama, kLlamaNames, "LlamaForCausalLM"),
     like_llama("mistral", describe_mistral, kLlamaNames, "MistralForCausalLM"),
     like_llama("qwen2", describe_qwen2, kLlamaNames, "Qwen2ForCausalLM"),
     like_llama("qwen3", describe_qwen3, kLlamaNames, "Qwen3ForCausalLM"),
     like_llama("phi3", describe_phi3, kLlamaNames, "Phi3ForCausalLM"),
     like_llama("gemma", describe_gemma, kLlamaNames, "GemmaForCausalLM"),
     like_llama("gemma2", describe_gemma2, kGemma2Names, "Gemma2ForCausalLM"),
     like_llama("gemma3_text", describe_gemma3, kGemma2Names, "Gemma3ForCausalLM")}};

}  // namespace

std::span<const Family> decoder_families() { return kDecoderFamilies; }

}  // namespace remat::pretrained

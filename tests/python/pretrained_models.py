"""Models of transformers' that the zoo has too, one for each thing that their configurations can ask for, and what the
reference program computes of them (tests/pretrained/reference_program.cpp)."""

import os
import subprocess

import torch
import transformers
from safetensors.torch import save_file

PROGRAM = os.environ.get("REMAT_PRETRAINED_PROGRAM")
VOCABULARY, BATCH, SEQ = 61, 3, 17
SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
BERT = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=32)
ROBERTA = dict(BERT, pad_token_id=1, type_vocab_size=1)
DISTILBERT = dict(vocab_size=VOCABULARY, dim=32, hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=32)
VIT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=4,
           num_labels=3)
# Without dropout: running statistics are of training, and so are the gradients through them.
EFFICIENTNET = dict(width_coefficient=0.25, depth_coefficient=1.1, hidden_dim=320, image_size=64, dropout_rate=0.0,
                    drop_connect_rate=0.0, batch_norm_momentum=0.3, num_labels=3)
PICTURES = {"vit": 16, "efficientnet": 64}  # pixels on a side, by the first word of a name


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=32))


def decoder(kind, **settings):
    """A function that makes a model of a class like LlamaForCausalLM."""
    config = "Gemma3TextConfig" if kind == "Gemma3" else kind + "Config"
    return "lm", lambda: getattr(transformers, kind + "ForCausalLM")(
        getattr(transformers, config)(**{**SIZES, "pad_token_id": 0, **settings}))


def encoder(kind, task, settings):
    head, labels = ("ForSequenceClassification", {"num_labels": 3}) if task == "classify" else ("ForMaskedLM", {})
    return task, lambda: getattr(transformers, kind + head)(
        getattr(transformers, kind + "Config")(**settings, **labels))


def efficientnet(**settings):
    return "classify", lambda: transformers.EfficientNetForImageClassification(
        transformers.EfficientNetConfig(**EFFICIENTNET, **settings))


def rope(kind, **settings):
    return dict(rope_type=kind, rope_theta=10000.0, **settings)


LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=16)
GEMMA = dict(head_dim=16)
GEMMA2 = dict(GEMMA, sliding_window=5, query_pre_attn_scalar=20)
LONG = rope("longrope", short_factor=[1.0, 1.1, 1.3, 2.0], long_factor=[1.0, 1.5, 3.0, 9.0])
PARTIAL = rope("longrope", short_factor=[1.0, 1.1, 1.3], long_factor=[1.0, 1.5, 3.0]) | {"partial_rotary_factor": 0.75}

MODELS = {
    "gpt2": ("lm", gpt2),
    "llama": decoder("Llama", pad_token_id=None),
    "llama tied, wider heads": decoder("Llama", tie_word_embeddings=True, head_dim=16),
    "llama with biases": decoder("Llama", attention_bias=True, mlp_bias=True),
    "llama 3's positions": decoder("Llama", rope_parameters=LLAMA3),
    "linear positions": decoder("Llama", rope_parameters=rope("linear", factor=3.0)),
    "dynamic positions, a longer text": decoder("Llama", rope_parameters=rope("dynamic", factor=3.0),
                                                max_position_embeddings=9),
    "dynamic positions": decoder("Llama", rope_parameters=rope("dynamic", factor=3.0)),
    "yarn's positions": decoder("Llama", rope_parameters=YARN, head_dim=16),
    "yarn's positions, all said": decoder("Llama", head_dim=16, rope_parameters=YARN | dict(
        beta_fast=8.0, beta_slow=0.5, mscale=0.7, mscale_all_dim=0.3, truncate=False)),
    "mistral": decoder("Mistral", sliding_window=None),
    "mistral with a window": decoder("Mistral", sliding_window=5, head_dim=16, tie_word_embeddings=True),
    "mistral with a long window": decoder("Mistral", sliding_window=SEQ),
    "qwen2": decoder("Qwen2", tie_word_embeddings=True),
    "qwen2 with a window": decoder("Qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1,
                                   rope_parameters=YARN),
    "qwen3": decoder("Qwen3", head_dim=16, tie_word_embeddings=True),
    "qwen3 with biases": decoder("Qwen3", head_dim=8, attention_bias=True, use_sliding_window=True, sliding_window=3,
                                 max_window_layers=2),
    "phi3": decoder("Phi3"),
    "phi3 with a window": decoder("Phi3", sliding_window=6, rope_parameters=rope("default") | {
        "partial_rotary_factor": 0.5}),
    "phi3's long positions": decoder("Phi3", original_max_position_embeddings=32, rope_parameters=LONG),
    "phi3's long positions, a longer text": decoder("Phi3", original_max_position_embeddings=16,
                                                    tie_word_embeddings=True, rope_parameters=PARTIAL),
    "gemma": decoder("Gemma", **GEMMA),
    "gemma with biases": decoder("Gemma", head_dim=8, attention_bias=True, tie_word_embeddings=False),
    "gemma2": decoder("Gemma2", **GEMMA2, attn_logit_softcapping=3.0, final_logit_softcapping=2.0),
    "gemma2 without caps": decoder("Gemma2", **GEMMA2, attn_logit_softcapping=None, final_logit_softcapping=None),
    "gemma3_text": decoder("Gemma3", **GEMMA2, sliding_window_pattern=2),
    "gemma3_text, stretched": decoder("Gemma3", **GEMMA2, layer_types=["full_attention", "sliding_attention"] * 2,
                                      num_hidden_layers=4, final_logit_softcapping=2.0, rope_parameters={
        "full_attention": rope("linear", factor=8.0) | {"rope_theta": 500.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}}),
    "bert that classifies": encoder("Bert", "classify", BERT),
    "bert with masked tokens": encoder("Bert", "mlm", BERT),
    "roberta that classifies": encoder("Roberta", "classify", ROBERTA),
    "roberta with masked tokens": encoder("Roberta", "mlm", ROBERTA),
    "distilbert that classifies": encoder("DistilBert", "classify", DISTILBERT),
    "distilbert with masked tokens": encoder("DistilBert", "mlm", DISTILBERT),
    "vit": ("classify", lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**VIT))),
    "efficientnet": efficientnet(),
    "efficientnet, some blocks padded on all sides": efficientnet(depthwise_padding=[2, 5], batch_norm_eps=0.01),
}
# One of each kind and task.
KINDS = ["gpt2", "llama", "mistral with a window", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text",
         *(name for name in MODELS if name.endswith(("classifies", "masked tokens"))), "vit"]


def make(name):
    task, build = MODELS[name]
    torch.manual_seed(7)
    model = build().train(name.startswith("efficientnet"))
    with torch.no_grad():  # norms and biases too, which are ones and zeros at first
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    return task, model


def inputs(name):
    task = MODELS[name][0]
    generator = torch.Generator().manual_seed(3)
    if side := PICTURES.get(name.partition(",")[0]):
        images = torch.randn(BATCH, 3, side, side, generator=generator)
        return {"input": images, "target": torch.tensor([0, 2, 1])}, dict(pixel_values=images)
    tokens = torch.randint(0, VOCABULARY, (BATCH, SEQ), generator=generator)
    if task == "lm":
        return {"input": tokens, "target": tokens.roll(1)}, dict(input_ids=tokens)
    mask = torch.ones_like(tokens)
    mask[1, SEQ - 5:] = 0
    if name.startswith("roberta"):  # whose positions go by padding
        tokens[0, 4] = tokens[1, SEQ - 5:] = ROBERTA["pad_token_id"]
    types = (torch.arange(SEQ) > 8).long().expand(BATCH, SEQ).contiguous()
    if not name.startswith("bert"):
        types = torch.zeros_like(types)
    target = torch.tensor([0, 2, 1]) if task == "classify" else tokens.roll(1)
    named = dict(input_ids=tokens, token_type_ids=types, attention_mask=mask)
    if name.startswith("distilbert"):
        del named["token_type_ids"]
    return {"input": torch.stack([tokens, types, mask], 1), "target": target}, named


def run(directory, task, tensors, tmp_path, *target):
    save_file(tensors, tmp_path / "in.safetensors")
    return subprocess.run([PROGRAM, directory, task, tmp_path / "in.safetensors", tmp_path / "out.safetensors",
                           tmp_path / "gradients", tmp_path / "saved", *target], capture_output=True, text=True)

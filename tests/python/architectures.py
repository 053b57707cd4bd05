"""Tiny models of Hugging Face's architectures, with random weights and inputs: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
import transformers
from compare import outcome
from torch import nn

_VOCABULARY = 99
_LENGTH = 48
_TEXT = dict(
    vocab_size=_VOCABULARY,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
_GROUPED = dict(_TEXT, num_key_value_heads=2, head_dim=8)
_ENCODER_DECODER = dict(
    vocab_size=_VOCABULARY,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=2,
)
_IMAGE = dict(
    image_size=32, patch_size=8, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4
)
_CLIP = dict(
    text_config=dict(_TEXT, projection_dim=16),
    vision_config=dict(_IMAGE, projection_dim=16),
    projection_dim=16,
)
_MAMBA = dict(vocab_size=_VOCABULARY, hidden_size=32, num_hidden_layers=6, state_size=8, expand=2)
_SPEECH = dict(
    _TEXT,
    conv_dim=(16, 16, 16),
    conv_stride=(5, 4, 2),
    conv_kernel=(10, 8, 4),
    num_feat_extract_layers=3,
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=2,
)

ARCHITECTURES: dict[str, tuple[str, dict[str, Any], str]] = {
    # What the quick run takes: one of each kind.
    "gpt2": ("GPT2LMHeadModel", dict(vocab_size=_VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=64), "causal"),
    "bert": ("BertForMaskedLM", _TEXT, "masked"),
    "llama": ("LlamaForCausalLM", _GROUPED, "causal"),
    "mixtral": ("MixtralForCausalLM", dict(_GROUPED, num_local_experts=4, output_router_logits=True), "causal"),
    "t5": (
        "T5ForConditionalGeneration",
        dict(vocab_size=_VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0),
        "text",
    ),
    "mamba": ("MambaForCausalLM", _MAMBA, "causal"),
    "vit": ("ViTForImageClassification", _IMAGE, "image"),
    "resnet": (
        "ResNetForImageClassification",
        dict(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[4, 3, 2, 2], layer_type="basic"),
        "image",
    ),
    "wav2vec2": ("Wav2Vec2ForCTC", dict(_SPEECH, layerdrop=0.0), "sound"),
    "clip": ("CLIPModel", _CLIP, "pairs"),
    # The rest.
    "albert": ("AlbertForMaskedLM", dict(_TEXT, embedding_size=16), "masked"),
    "ast": (
        "ASTForAudioClassification",
        dict(_IMAGE, max_length=48, num_mel_bins=16, frequency_stride=8, time_stride=8),
        "spectrum",
    ),
    "bart": ("BartForConditionalGeneration", _ENCODER_DECODER, "text"),
    "beit": ("BeitForImageClassification", _IMAGE, "image"),
    "blip": ("BlipModel", _CLIP, "pairs"),
    "bloom": ("BloomForCausalLM", dict(vocab_size=_VOCABULARY, hidden_size=32, n_layer=6, n_head=4), "causal"),
    "convnext": (
        "ConvNextForImageClassification",
        dict(hidden_sizes=[8, 16, 16, 32], depths=[4, 3, 2, 1]),
        "large image",
    ),
    "deberta-v2": (
        "DebertaV2ForMaskedLM",
        dict(_TEXT, relative_attention=True, position_buckets=16, pos_att_type=["p2c", "c2p"]),
        "masked",
    ),
    "dinov2": ("Dinov2ForImageClassification", _IMAGE, "image"),
    "distilbert": (
        "DistilBertForMaskedLM",
        dict(vocab_size=_VOCABULARY, dim=32, hidden_dim=64, n_layers=3, n_heads=4, max_position_embeddings=64),
        "masked",
    ),
    "efficientnet": (
        "EfficientNetForImageClassification",
        dict(image_size=96, width_coefficient=0.2, depth_coefficient=0.2, hidden_dim=256),
        "large image",
    ),
    "electra": ("ElectraForSequenceClassification", dict(_TEXT, embedding_size=16), "sentence"),
    "falcon": ("FalconForCausalLM", dict(_TEXT, alibi=False), "causal"),
    "gemma": ("GemmaForCausalLM", _GROUPED, "causal"),
    "gemma2": ("Gemma2ForCausalLM", dict(_GROUPED, sliding_window=16), "causal"),
    "gpt-neox": ("GPTNeoXForCausalLM", _TEXT, "causal"),
    "gpt-oss": ("GptOssForCausalLM", dict(_GROUPED, num_local_experts=4, num_experts_per_tok=2), "causal"),
    "mamba2": ("Mamba2ForCausalLM", dict(_MAMBA, num_heads=8, head_dim=8, n_groups=2, chunk_size=16), "causal"),
    "mistral": ("MistralForCausalLM", dict(_GROUPED, sliding_window=16), "causal"),
    "opt": (
        "OPTForCausalLM",
        dict(_TEXT, num_hidden_layers=8, ffn_dim=64, word_embed_proj_dim=32, layerdrop=0.1),
        "causal",
    ),
    "phi": ("PhiForCausalLM", _TEXT, "causal"),
    "qwen2": ("Qwen2ForCausalLM", _GROUPED, "causal"),
    "qwen2-moe": (
        "Qwen2MoeForCausalLM",
        dict(
            _GROUPED,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
        ),
        "causal",
    ),
    "qwen3": ("Qwen3ForCausalLM", _GROUPED, "causal"),
    "roberta": ("RobertaForMaskedLM", _TEXT, "masked"),
    "segformer": (
        "SegformerForSemanticSegmentation",
        dict(hidden_sizes=[8, 8, 16, 16], depths=[3, 3, 2, 2], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=8),
        "segments",
    ),
    "swin": (
        "SwinForImageClassification",
        dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
        "image",
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        dict(_ENCODER_DECODER, num_mel_bins=16, max_source_positions=24, max_target_positions=64),
        "spectrum text",
    ),
    "xlnet": (
        "XLNetForSequenceClassification",
        dict(vocab_size=_VOCABULARY, d_model=32, n_layer=6, n_head=4, d_inner=64),
        "sentence",
    ),
}
QUICK = list(ARCHITECTURES)[: list(ARCHITECTURES).index("albert")]


def make(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """The model in train mode, with dropout wherever its configuration has some, and inputs that give it a loss."""
    class_name, options, kind = ARCHITECTURES[name]
    model_class = getattr(transformers, class_name)
    torch.manual_seed(5)
    config = model_class.config_class(**options)
    for part in (config, getattr(config, "text_config", None), getattr(config, "vision_config", None)):
        for key, value in list(vars(part).items()) if part is not None else ():
            if "drop" in key and "layerdrop" not in key and isinstance(value, float):
                setattr(part, key, 0.1)
    return model_class(config).train(), _inputs(kind)


def _inputs(kind: str) -> dict[str, Any]:
    ids = torch.randint(3, _VOCABULARY, (4, _LENGTH))
    mask = torch.ones_like(ids)
    mask[1, -7:] = 0  # one shorter than the others
    images = torch.randn(4, 3, 32, 32)
    if kind in ("causal", "masked"):
        return dict(input_ids=ids, attention_mask=mask, labels=ids.clone())
    if kind == "text":
        return dict(input_ids=ids, attention_mask=mask, labels=ids[:, :24].clone())
    if kind == "sentence":
        return dict(input_ids=ids, attention_mask=mask, labels=torch.tensor([0, 1, 1, 0]))
    if kind == "image":
        return dict(pixel_values=images, labels=torch.tensor([0, 1, 1, 0]))
    if kind == "large image":
        return dict(pixel_values=torch.randn(4, 3, 96, 96), labels=torch.tensor([0, 1, 1, 0]))
    if kind == "segments":
        return dict(pixel_values=torch.randn(4, 3, 96, 96), labels=torch.randint(0, 2, (4, 96, 96)))
    if kind == "sound":
        return dict(input_values=torch.randn(4, 3200), labels=ids[:, :5].clone())
    if kind == "spectrum":
        return dict(input_values=torch.randn(4, 48, 16), labels=torch.tensor([0, 1, 1, 0]))
    if kind == "spectrum text":
        return dict(input_features=torch.randn(4, 16, 48), labels=ids[:, :24].clone())
    if kind == "pairs":
        return dict(input_ids=ids, attention_mask=mask, pixel_values=images, return_loss=True)
    raise ValueError(kind)


def train(
    model: nn.Module, inputs: dict[str, Any], scope: Callable[[], AbstractContextManager[Any]], steps: int
) -> list[torch.Tensor | None]:
    """Everything that must be the same. `scope`: what remat adds around a step."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # there before a step begins: budgets are of activations alone
    torch.manual_seed(11)
    np.random.seed(11)  # masks of wav2vec2
    losses = []
    for _ in range(steps):
        with scope():
            loss = model(**inputs).loss
            loss.backward()
        losses.append(loss.detach())
    return outcome(model, losses)

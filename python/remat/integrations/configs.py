"""Models of transformers from their configurations alone, with inputs of a size: for estimates."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from remat.errors import Error

# What each task's model is made by.
TASKS = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "text-classification": "AutoModelForSequenceClassification",
    "image-classification": "AutoModelForImageClassification",
}
_IMAGE_SIZE = 224  # pixels on each side, where the configuration has none


def find_config(name: str) -> Any:
    """The configuration in a directory or file, or else by the name of a model that is on this machine (in the cache of
    Hugging Face), or the default of a kind of model ("gpt2", "bert"). Raises Error if there is none."""
    from transformers import CONFIG_MAPPING, AutoConfig

    if os.path.exists(name):
        try:
            return AutoConfig.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise Error(
                f"[estimate] no configuration in '{name}': {error}; give a directory with config.json"
            ) from None
    if name in CONFIG_MAPPING:
        return AutoConfig.for_model(name)
    try:
        return AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise Error(
            f"[estimate] no configuration named '{name}' ({reason}); give a directory with config.json, or a kind of "
            f"model such as gpt2 or bert"
        ) from None


def find_task(config: Any) -> str:
    """The task of the configuration's own architecture, or the first that there is a model for."""
    import transformers

    fits = _tasks_of(config)
    for task in fits:
        known = getattr(transformers, TASKS[task])._model_mapping[type(config)]
        names = [c.__name__ for c in (known if isinstance(known, tuple) else (known,))]
        if any(name in (config.architectures or ()) for name in names):
            return task
    if type(config).__name__ == "BertConfig" and "masked-lm" in fits:  # its causal one is rarely meant
        return "masked-lm"
    if not fits:
        raise Error(f"[estimate] transformers has no model of {', '.join(TASKS)} for {type(config).__name__}")
    if getattr(config, "is_encoder_decoder", False) and "seq2seq-lm" not in fits:  # of speech, for one
        raise Error(
            f"[estimate] the encoder and decoder of {type(config).__name__} are trained in a way that is not among "
            f"{', '.join(TASKS)}; measure a real step instead: remat.Session().step(), or name a task of its parts: "
            f"{', '.join(fits)}"
        )
    return fits[0]


def _tasks_of(config: Any) -> list[str]:
    import transformers

    return [task for task, loader in TASKS.items() if type(config) in getattr(transformers, loader)._model_mapping]


def check_task(config: Any, task: str) -> None:
    """Raises Error unless transformers has a model of `config` for `task`."""
    if task not in TASKS:
        raise Error(f"[estimate] there is no task {task!r}; there are {', '.join(TASKS)}")
    fits = _tasks_of(config)
    if task not in fits:
        raise Error(
            f"[estimate] transformers has no {task} model for {type(config).__name__}; it has {', '.join(fits)}"
        )


def training(
    config: Any, task: str, batch: int, length: int, dtype: torch.dtype
) -> tuple[Callable[[], nn.Module], Callable[[nn.Module], torch.Tensor]]:
    """What remat.estimate.estimate() takes, for the model of a configuration."""
    import transformers

    loader = getattr(transformers, TASKS[task])
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and length > longest and task != "image-classification":
        raise Error(f"[estimate] a length of {length} is more than this model's {longest} positions; use that or less")

    if task == "seq2seq-lm" and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0  # a kind of model's default has none; which one takes no memory

    def make_model() -> nn.Module:
        return loader.from_config(config, dtype=dtype)

    def loss_of(model: nn.Module) -> torch.Tensor:
        labels_shape: tuple[int, ...] = (batch,)
        if task == "image-classification":
            vision = getattr(config, "vision_config", config)
            size = getattr(vision, "image_size", _IMAGE_SIZE)  # convolutions take any
            height, width = size if isinstance(size, (tuple, list)) else (size, size)
            channels = getattr(vision, "num_channels", 3)
            inputs = {"pixel_values": torch.empty(batch, channels, height, width, dtype=dtype)}
        else:
            inputs = {"input_ids": torch.empty(batch, length, dtype=torch.long)}
            if task != "text-classification":
                labels_shape = (batch, length)
        return model(**inputs, labels=torch.empty(labels_shape, dtype=torch.long)).loss

    return make_model, loss_of

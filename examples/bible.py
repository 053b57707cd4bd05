"""The King James Bible for the examples: verses, as words or as bytes, and a model for those. `scripts/kjv FILE` writes
the text."""

from __future__ import annotations

import collections
import pathlib
import re
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

DEFAULT = pathlib.Path(__file__).parent.parent / "build" / "data" / "kjv.txt"
PADDING, UNKNOWN, BEGIN, SEPARATOR = range(4)


def verses(path: str | pathlib.Path) -> tuple[list[str], list[str]]:
    """Those of the Old and of the New Testament. A chapter begins with "Matthew 1", a verse with its number."""
    if not pathlib.Path(path).exists():
        sys.exit(f"{path} is not there; write it with: scripts/kjv {path}")
    testaments: tuple[list[str], list[str]] = ([], [])
    which = 0
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith("Matthew "):
            which = 1
        verse = re.match(r"\s*\d+ (\D.*)", line)
        if verse and line.startswith(" "):
            testaments[which].append(verse[1])
    return testaments


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+|[.,:;?!]", text.lower())


class Vocabulary:
    """The most frequent words of a text, by number."""

    def __init__(self, texts: list[str], size: int) -> None:
        counts = collections.Counter(word for text in texts for word in words(text))
        self._numbers = {word: number for number, (word, _) in enumerate(counts.most_common(size - 4), start=4)}
        self.size = len(self._numbers) + 4

    def encode(self, text: str) -> list[int]:
        return [self._numbers.get(word, UNKNOWN) for word in words(text)]


def stream_of_bytes(texts: list[str]) -> torch.Tensor:
    """Verses one after the other; a line feed ends each."""
    return torch.frombuffer(bytearray("\n".join(texts).encode() + b"\n"), dtype=torch.uint8).long()


def model_of_bytes(length: int, width: int, layers: int) -> GPT2LMHeadModel:
    """A GPT-2 for such streams, with random weights."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=256,
            n_positions=length,
            n_embd=width,
            n_layer=layers,
            n_head=max(1, width // 64),
            bos_token_id=ord("\n"),
            eos_token_id=ord("\n"),
        )
    )

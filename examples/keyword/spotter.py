"""A keyword spotter that learns one more word on a microcontroller (docs/tutorial-export.md).

    python spotter.py [--epochs 15]        trains it on ten words; writes spotter.pt and utterances.h here
    python -m remat export spotter.py:spotter --ram 256KiB --out c/
    ./board qemu                           builds board.c, with the C of the export, and runs it
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES, NEW = 12, 11  # ten words, any other word, and one that nobody knows yet


def network(norm: bool) -> nn.Sequential:
    """The DS-CNN of MLPerf Tiny. While it learns the ten words it has norms, which then become part of the convolutions."""

    def block(convolution: nn.Conv2d) -> list[nn.Module]:
        return [convolution, *([nn.BatchNorm2d(64)] if norm else []), nn.ReLU()]

    parts = block(nn.Conv2d(1, 64, (10, 4), stride=2, padding=(5, 1)))
    for _ in range(4):
        parts += block(nn.Conv2d(64, 64, 3, padding=1, groups=64))
        parts += block(nn.Conv2d(64, 64, 1))
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def without_norms(model: nn.Sequential) -> nn.Sequential:
    folded = network(norm=False)
    convolutions = (part for part in folded if isinstance(part, nn.Conv2d))
    for convolution, norm in zip(model, model[1:], strict=False):
        if isinstance(norm, nn.BatchNorm2d):
            fused = nn.utils.fuse_conv_bn_eval(convolution.eval(), norm.eval())
            next(convolutions).load_state_dict(fused.state_dict())
    folded[-1].load_state_dict(model[-1].state_dict())
    return folded


def spotter() -> tuple[nn.Module, object, Tensor, Tensor]:
    """What `python -m remat export` asks for."""
    model = network(norm=False)
    model.load_state_dict(torch.load("spotter.pt"))
    return model, F.cross_entropy, torch.zeros(1, 1, 49, 10), torch.tensor([0])


def tensor(features: numpy.ndarray) -> Tensor:
    return torch.from_numpy(features).float().unsqueeze(1) / 8


def moved(x: Tensor) -> Tensor:
    """Each utterance up to a tenth of a second earlier or later, and somewhat noisy."""
    frames = (torch.arange(49) - torch.randint(-5, 6, (len(x), 1))) % 49
    return x[torch.arange(len(x))[:, None], :, frames].transpose(1, 2) + 0.2 * torch.randn_like(x)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((model.eval()(x).argmax(1) == y).float().mean())


def train(data: dict[str, numpy.ndarray], epochs: int) -> nn.Sequential:
    x, y = tensor(data["train_x"]), torch.from_numpy(data["train_y"]).long()
    model = network(norm=True)
    optimizer = torch.optim.Adam(model.parameters())
    batches = len(x) // 32
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * batches)
    for _ in range(epochs):
        for batch in torch.randperm(len(x))[: 32 * batches].view(-1, 32):
            optimizer.zero_grad()
            F.cross_entropy(model.train()(moved(x[batch]))[:, :NEW], y[batch]).backward()  # no place for what is not known
            optimizer.step()
            schedule.step()
    return without_norms(model).eval()


def write_utterances(data: dict[str, numpy.ndarray]) -> None:
    """For board.c. `old`: six of each known word, to go on with; `test`: what nobody heard before."""
    old = numpy.stack([numpy.flatnonzero(data["train_y"] == number)[:6] for number in range(NEW)]).T.flatten()
    kept = {"new_x": data["new_x"], "new_test_x": data["new_test_x"], "test_x": data["test_x"], "test_y": data["test_y"]}
    lines = []
    for name, values in (*kept.items(), ("old_x", data["train_x"][old]), ("old_y", data["train_y"][old])):
        rows = [",".join(map(str, numpy.ravel(row))) for row in values]
        if values.ndim > 1:
            lines.append(f"static const signed char {name}[][490] = {{\n{{" + "},\n{".join(rows) + "}};\n")
        else:
            lines.append(f"static const unsigned char {name}[] = {{{','.join(rows)}}};\n")
    Path("utterances.h").write_text("".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args()
    torch.manual_seed(0)
    with numpy.load(Path(__file__).with_name("words.npz")) as file:
        data = dict(file)
    model = train(data, options.epochs)
    torch.save(model.state_dict(), "spotter.pt")
    write_utterances(data)
    right = accuracy(model, tensor(data["test_x"]), torch.from_numpy(data["test_y"]).long())
    print(f"{len(data['train_y'])} utterances; {100 * right:.1f} % of {len(data['test_y'])} by voices that it never heard")


if __name__ == "__main__":
    main()

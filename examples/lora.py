"""Low-rank adapters (PEFT) in a memory budget: a GPT-2 learns the Old Testament, is frozen, and adapters learn the New.

    scripts/kjv build/data/kjv.txt && python examples/lora.py --budget 40%
"""

from __future__ import annotations

import argparse

import bible
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

import remat


def train(model: nn.Module, stream: torch.Tensor, options: argparse.Namespace, name: str) -> None:
    remat.wrap(model, budget=options.budget)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=options.rate)
    length = min(options.length, len(stream) - 1)
    for step in range(1, options.steps + 1):
        starts = torch.randint(len(stream) - length, (options.batch,))
        ids = torch.stack([stream[start : start + length] for start in starts.tolist()])
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        if step == options.steps or step % 20 == 0:
            report = remat.session_of(model).report()
            peaks = f"peak {report.peak_bytes >> 20} MiB, plain {report.plain_peak_bytes >> 20} MiB"
            print(f"{name}, step {step}: loss {loss.item():.3f}, {peaks}", flush=True)
    remat.unwrap(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=bible.DEFAULT, help="text that scripts/kjv wrote")
    parser.add_argument("--budget", default="40%", help='bytes ("6GiB"), or of plain\'s activation peak ("40%%")')
    parser.add_argument("--steps", type=int, default=200, help="of each training")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    options = parser.parse_args()

    torch.manual_seed(1)
    old, new = (bible.stream_of_bytes(testament) for testament in bible.verses(options.data))
    base = bible.model_of_bytes(options.length, options.width, options.layers).train()
    train(base, old, options, "base")
    adapted = get_peft_model(
        base,
        LoraConfig(
            task_type="CAUSAL_LM", r=options.rank, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True
        ),
    ).train()
    adapted.print_trainable_parameters()
    train(adapted, new, options, "adapters")


if __name__ == "__main__":
    main()

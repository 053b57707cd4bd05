"""Trains a GPT-2 on the bytes of the King James Bible with accelerate: one line keeps every micro-batch in its budget.

    scripts/kjv build/data/kjv.txt && python examples/gpt2_accelerate.py --budget 40%
"""

from __future__ import annotations

import argparse

import bible
import torch
from accelerate import Accelerator

import remat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=bible.DEFAULT, help="text that scripts/kjv wrote")
    parser.add_argument("--budget", default="40%", help='bytes ("6GiB"), or of plain\'s activation peak ("40%%")')
    parser.add_argument("--steps", type=int, default=300, help="of the optimizer")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches in a step of the optimizer")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    options = parser.parse_args()

    torch.manual_seed(1)
    text = [verse for testament in bible.verses(options.data) for verse in testament]
    stream = bible.stream_of_bytes(text)
    length = min(options.length, len(stream) // 4)
    samples = stream[: len(stream) // length * length].reshape(-1, length)
    loader = torch.utils.data.DataLoader(samples, batch_size=options.batch, shuffle=True)
    model = bible.model_of_bytes(length, options.width, options.layers).train()

    accelerator = Accelerator(gradient_accumulation_steps=options.accumulate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    remat.wrap(model, budget=options.budget)
    step = 0
    while step < options.steps:
        for ids in loader:
            with accelerator.accumulate(model):
                loss = model(input_ids=ids, labels=ids).loss
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if not accelerator.sync_gradients:
                continue
            step += 1
            if step == 1 or step % 10 == 0:
                report = remat.session_of(model).report()
                print(
                    f"step {step}: loss {loss.item():.3f}, peak {report.peak_bytes >> 20} MiB, "
                    f"plain {report.plain_peak_bytes >> 20} MiB",
                    flush=True,
                )
            if step == options.steps:
                break
    print(remat.session_of(model).report())


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Makes steps of a GPT under FSDP2 on two processes of a thread each: bench/sharded_step.py LAYERS VARIANT [BYTES]

Each block is a group of its own. VARIANT: "plain", "checkpoint" (torch's checkpoint_wrapper around every block), "remat"
within BYTES more than are alive when the step begins (none: no budget), or "agreed", the same with process_group.
Answers each line of standard input with a step and a line of JSON, as peer_step.py does: the slower process's seconds, the larger bytes, fingerprints of what both left.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile

import peer_models
import torch
import torch.distributed as dist
from peer_step import fingerprint, measure
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

import remat

RANKS = 2


def sharded_gpt(layers, wrap):
    torch.manual_seed(1)
    model = peer_models.GPT(batch=4)
    model.blocks = nn.ModuleList(wrap(block) for block in list(model.blocks)[:layers])
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    register_fsdp_forward_method(model, "loss")
    return model


class Program:
    def __init__(self, layers, variant, activation_peak_bytes=None):
        remat.memory.start_accounting()
        self.model = sharded_gpt(layers, checkpoint_wrapper if variant == "checkpoint" else lambda block: block)
        self.is_remat, self.activation_peak_bytes = variant in ("remat", "agreed"), activation_peak_bytes
        self.process_group = dist.group.WORLD if variant == "agreed" else None
        self.session = None
        self.run(contextlib.nullcontext)  # FSDP2 makes its buffers in the first step

    def run(self, around):
        for parameter in self.model.parameters():
            parameter.grad = None
        torch.manual_seed(7 + dist.get_rank())
        dist.barrier()
        baseline = remat.memory.current("cpu")

        def step():
            with around():
                loss = self.model.loss()
                forward_bytes = remat.memory.current("cpu") - baseline
                loss.backward()
            return loss, forward_bytes

        measured, (loss, forward_bytes) = measure(step)
        return measured | {
            "forward_bytes": forward_bytes,
            "gradients": fingerprint(parameter.grad.to_local() for parameter in self.model.parameters()),
            "buffers": loss.item(),
        }

    def step(self):
        if not self.is_remat:
            return self.run(contextlib.nullcontext)
        if self.session is None:
            for parameter in self.model.parameters():
                parameter.grad = None
            more = self.activation_peak_bytes
            budget = None if more is None else remat.memory.current("cpu") + more
            self.session = remat.Session(budget=budget, process_group=self.process_group)
        result = self.run(self.session.step)
        report = self.session.report()
        over = report.peak_bytes - report.budget_bytes
        return result | {"values_dropped": report.values_dropped, "ops_replayed": report.ops_replayed, "over": max(0, over)}


def both(own, other):
    """One answer of two."""
    joined = {key: max(own[key], other[key]) for key in own if key not in ("gradients", "buffers", "cpu")}
    return joined | {
        "cpu": own["cpu"] + other["cpu"],
        "gradients": own["gradients"] + other["gradients"],
        "buffers": [own["buffers"], other["buffers"]],
    }


def serve(rank, store, arguments, other=None):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=RANKS)
    layers, variant, *peak = arguments
    program = Program(int(layers), variant, *map(int, peak))
    for line in sys.stdin:
        if other is not None:
            other.stdin.write(line)
            other.stdin.flush()
        try:
            result = program.step()
        except RuntimeError as error:  # remat.BudgetError: no plan for so little
            result = {"error": str(error)}
        if other is not None:
            answer = json.loads(other.stdout.readline())
            wrong = [each for each in (result, answer) if "error" in each]
            result = wrong[0] if wrong else both(result, answer)
        print(json.dumps(result), flush=True)


def main():
    if "REMAT_SHARDED_STORE" in os.environ:
        serve(1, os.environ["REMAT_SHARDED_STORE"], sys.argv[1:])
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"REMAT_SHARDED_STORE": f"{folder}/store"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen([sys.executable, *sys.argv], env=environment, **pipes) as other:
            serve(0, f"{folder}/store", sys.argv[1:], other)
            other.stdin.close()


if __name__ == "__main__":
    main()

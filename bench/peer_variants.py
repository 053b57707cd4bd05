"""Other ways to save activation memory, and remat: each makes one step of a model of peer_models.py."""
import contextlib
import math

import torch
from peer_models import HuggingFace
from torch.utils.checkpoint import (CheckpointPolicy, checkpoint, checkpoint_sequential,
                                    create_selective_checkpoint_contexts)

import remat

aten = torch.ops.aten
HEAVY = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.convolution.default,
         aten._scaled_dot_product_flash_attention_for_cpu.default, aten._scaled_dot_product_attention_math.default}


def per_block(blocks, x, **options):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False, **options)
    return x


def every_second_block(blocks, x):
    for i, block in enumerate(blocks):
        x = checkpoint(block, x, use_reentrant=False) if i % 2 == 0 else block(x)
    return x


def square_root_of_blocks(blocks, x):
    blocks = list(blocks)
    return checkpoint_sequential(blocks, round(math.sqrt(len(blocks))), x, use_reentrant=False)


def save_heavy(ctx, operator, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if operator in HEAVY else CheckpointPolicy.PREFER_RECOMPUTE


def selective(blocks, x):
    return per_block(blocks, x, context_fn=lambda: create_selective_checkpoint_contexts(save_heavy))


RUNNERS = {"checkpoint every block": per_block, "checkpoint every second block": every_second_block,
           "checkpoint sqrt(n) segments": square_root_of_blocks, "selective (save products)": selective}


@contextlib.contextmanager
def blocks_run_by(model, run):
    """A model of ours takes `run` as it is. In a model of transformers, each block's forward is put under the
    checkpoint that `run` would give it; segments of several blocks are not possible there."""
    if not isinstance(model, HuggingFace):
        before, model.run_blocks = model.run_blocks, run
        yield
        model.run_blocks = before
        return
    with contextlib.ExitStack() as undo:
        for i, block in enumerate(model.blocks):
            if run is every_second_block and i % 2 == 1:
                continue
            original = block.forward
            options = {"context_fn": lambda: create_selective_checkpoint_contexts(save_heavy)} if run is selective else {}
            block.forward = lambda *args, original=original, options=options, **kwargs: checkpoint(
                original, *args, use_reentrant=False, **options, **kwargs)
            undo.callback(block.__dict__.pop, "forward")
        yield


@contextlib.contextmanager
def hugging_face_checkpointing(model):
    model.model.gradient_checkpointing_enable()
    yield
    model.model.gradient_checkpointing_disable()


def peers_of(model):
    """By name, what to put around a step."""
    peers = {name: lambda run=run: blocks_run_by(model, run) for name, run in RUNNERS.items()}
    if isinstance(model, HuggingFace):
        del peers["checkpoint sqrt(n) segments"]
        peers["transformers' own checkpointing"] = lambda: hugging_face_checkpointing(model)
    return peers


class WithinPeak:
    """remat, given as many bytes above the step's start as a peer takes there."""

    def __init__(self, activation_peak_bytes):
        self.activation_peak_bytes = activation_peak_bytes
        self.session = None
        self.budget_bytes = 0

    def __call__(self):
        if self.session is None:
            self.budget_bytes = remat.memory.current("cpu") + self.activation_peak_bytes
            self.session = remat.Session(budget=self.budget_bytes, device="cpu")
        return self.session.step()


def nothing_dropped():
    """remat with more memory than it needs: what recording costs."""
    session = remat.Session(device="cpu")
    return lambda: session.step()

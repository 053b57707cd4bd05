"""Other ways to save activation memory, and remat: what each changes in a model of peer_models.py or puts around a step."""

import contextlib
import math

import torch
import torch._functorch.config
from peer_models import GPT, HuggingFace
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import remat
from remat.partition_choice import FASTEST, Compiler
from remat.progress import call_between_steps

aten = torch.ops.aten
HEAVY = {
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.convolution.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    aten._scaled_dot_product_attention_math.default,
}


def every_block(model):
    model.run_blocks_by(lambda index, block, *args, **kwargs: checkpoint(block, *args, use_reentrant=False, **kwargs))


def every_second_block(model):
    def run(index, block, *args, **kwargs):
        return block(*args, **kwargs) if index % 2 else checkpoint(block, *args, use_reentrant=False, **kwargs)

    model.run_blocks_by(run)


def square_root_of_blocks(model):
    """As torch.utils.checkpoint.checkpoint_sequential does it: the last segment is not under a checkpoint."""
    blocks, segments = list(model.blocks), round(math.sqrt(len(model.blocks)))
    size = len(blocks) // segments
    starts = [size * segment for segment in range(segments)]
    ends = [*starts[1:], len(blocks)]
    model.blocks = nn.ModuleList(nn.Sequential(*blocks[start:end]) for start, end in zip(starts, ends))

    def run(index, segment, x):
        return segment(x) if index == segments - 1 else checkpoint(segment, x, use_reentrant=False)

    model.run_blocks_by(run)


def selective(model):
    """Products, convolutions and attention are saved, the rest is computed again."""

    def choose(ctx, operator, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if operator in HEAVY else CheckpointPolicy.PREFER_RECOMPUTE

    def run(index, block, *args, **kwargs):
        return checkpoint(
            block, *args, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(choose), **kwargs
        )

    model.run_blocks_by(run)


def saved_on_host(model):
    """What autograd saves goes to pinned memory of the host, and comes back for its use."""
    loss = model.loss

    def with_hooks():
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return loss()

    model.loss = with_hooks


def transformers_own(model):
    model.model.gradient_checkpointing_enable()


def compiled(budget):
    """torch.compile, saving the share `budget` of what it would save."""

    def change(model):
        torch._functorch.config.activation_memory_budget = budget
        model.loss = torch.compile(model.loss)

    return change


def blocks_compiled(budget):
    """torch.compile on each block, saving the share `budget` of what it would save."""

    def change(model):
        torch._functorch.config.activation_memory_budget = budget
        compiled = {}

        def run(index, block, *args, **kwargs):
            if index not in compiled:
                compiled[index] = torch.compile(block, dynamic=False)  # blocks of several sizes share their code
            return compiled[index](*args, **kwargs)

        model.run_blocks_by(run)

    return change


class GeneratorState:
    """For torch_remat, which leaves random numbers to its users: each recompute draws those of the forward pass."""

    snapshot = staticmethod(torch.get_rng_state)
    restore = staticmethod(torch.set_rng_state)


def torch_remat_blocks(saves_products):
    """torch_remat's checkpoint around every block, inside of which products and attention are recomputed or saved."""

    def change(model):
        import torch_remat

        def saved(name, function):
            region = torch_remat.region(function, name, recompute=False)

            def run(*args, **kwargs):
                result = region(*args, **kwargs)
                torch_remat.recompute_needs_tensor(result)
                return result

            return run

        def run(index, block, *args, **kwargs):
            checkpointed = torch_remat.checkpoint(region_name=str(index), recompute_state_hooks=(GeneratorState,))
            return checkpointed(block)(*args, **kwargs)

        if saves_products:
            for block in model.blocks:
                for name, module in block.named_modules():
                    if type(module).__name__ in ("Linear", "Conv1D"):  # Conv1D: transformers' product
                        module.forward = saved(name, module.forward)
            torch.nn.functional.scaled_dot_product_attention = saved(
                "attention", torch.nn.functional.scaled_dot_product_attention
            )
        model.run_blocks_by(run)

    return change


AGAIN = "plain again"  # in another process: how far apart two runs of the same thing are
EVERY_BLOCK, OWN, COMPILED = "checkpoint every block", "transformers' own checkpointing", "compiled"
TORCH_REMAT = "torch_remat"  # of PyPI: Meta's
CHANGES = {
    "plain": lambda model: None,
    AGAIN: lambda model: None,
    EVERY_BLOCK: every_block,
    "checkpoint every second block": every_second_block,
    "checkpoint sqrt(n) segments": square_root_of_blocks,
    "selective (save products)": selective,
    OWN: transformers_own,
    TORCH_REMAT: torch_remat_blocks(saves_products=False),
    f"{TORCH_REMAT}, products saved": torch_remat_blocks(saves_products=True),
    COMPILED: compiled(1.0),
} | {f"{COMPILED}, memory budget {budget}": compiled(budget) for budget in (0.8, 0.5, 0.3, 0.1)}
NOTHING_DROPPED = "remat, nothing dropped"
SAVED_ON_HOST = "saved on the host"  # for bench/gpu.py alone: on the CPU there is nothing to be had
BLOCKS = "blocks compiled"  # for bench/compiled.py alone
BLOCK_BUDGETS = {f"{BLOCKS}, memory budget {budget}": blocks_compiled(budget) for budget in (0.8, 0.5, 0.3, 0.1)}
REMAT_BLOCKS = "remat on compiled blocks"
REMAT_FASTEST = "remat on compiled blocks, the fastest cuts"


def peers_of(model):
    """What fits a class of models, by name."""
    unfit = {"checkpoint sqrt(n) segments": not model.is_chain, OWN: not issubclass(model, HuggingFace)}
    for name in CHANGES:
        if name.startswith(TORCH_REMAT):  # it is made for blocks of transformers
            unfit[name] = not issubclass(model, (GPT, HuggingFace))
    return [name for name in CHANGES if name != "plain" and not unfit.get(name, False)]


class Steps:
    """`variant` of a step of `model` on a device: a peer, or remat with so many bytes more than are alive when the step
    begins (None: with more than it needs), or with a budget such as "60%"."""

    def __init__(self, model, variant, activation_peak=None, device="cpu"):
        changes = CHANGES | BLOCK_BUDGETS | {BLOCKS: blocks_compiled(1.0), SAVED_ON_HOST: saved_on_host}
        self.is_remat, self.budget, self.device = variant not in changes, activation_peak, device
        self.session = None
        if variant == REMAT_FASTEST:
            compiler = Compiler(model.blocks, {"dynamic": False}, FASTEST)
            for block in model.blocks:
                compiler.compile(block)
            call_between_steps(compiler.choice.between_steps)
        if variant == REMAT_BLOCKS:
            variant = BLOCKS
        if variant in changes:
            changes[variant](model)

    def around(self):
        """The context of one step."""
        if not self.is_remat:
            return contextlib.nullcontext()
        if self.session is None:
            if isinstance(self.budget, int):
                self.budget += remat.memory.current(self.device)
            self.session = remat.Session(budget=self.budget, device=self.device)
        return self.session.step()

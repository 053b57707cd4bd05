"""Ways of other projects' to save memory, as bench/audits.py gives them to remat.audit(): each function gets a model of
audited_training.py before its first call, and changes it or returns what is to be called in its place.

A way is used as its project's own documents say, around each block of the model where it is one for blocks. Its package is
imported by the function, so that one that is missing is a failure of that way alone.
"""

import functools
import os
from types import SimpleNamespace

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

BLOCKS = ("GPT2Block", "LlamaDecoderLayer", "ResNetBottleNeckLayer")


def blocks(model):
    return [module for module in model.modules() if type(module).__name__ in BLOCKS]


def run_blocks_by(model, run):
    """From now on run(forward, inputs...) stands for forward(inputs...) of each block."""
    for block in blocks(model):
        block.forward = functools.partial(run, block.forward)


def require_gradients_of_inputs(model):
    """Without them a reentrant checkpoint passes none on, where all before it is frozen."""
    if hasattr(model, "peft_config"):
        model.enable_input_require_grads()


# Of PyTorch.


def torch_checkpoint(model):
    run_blocks_by(model, functools.partial(checkpoint, use_reentrant=False))


def torch_reentrant(model):
    require_gradients_of_inputs(model)

    def run(forward, *args, **kwargs):  # which takes no keywords
        return checkpoint(functools.partial(forward, **kwargs), *args, use_reentrant=True)

    run_blocks_by(model, run)


def torch_selective(model):
    """Products, convolutions and attention are saved, the rest is computed again."""
    saved = {
        getattr(torch.ops.aten, name).default
        for name in ("mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_dot_product_flash_attention_for_cpu")
    }

    def choose(context, operator, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if operator in saved else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, choose)
    run_blocks_by(model, functools.partial(checkpoint, use_reentrant=False, context_fn=contexts))


# Of what trains on top of PyTorch.


def transformers_checkpoint(model):
    model.activation_checkpointing_enable()


def transformers_offload(model):
    model.activation_checkpointing_enable(offload=True)


def accelerate_checkpoint(model):
    """What Accelerator.prepare() does where a plugin for FSDP2 has activation_checkpointing=True."""
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.fsdp_utils import fsdp2_apply_ac

    names = sorted({type(block).__name__ for block in blocks(model)})
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        activation_checkpointing=True,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=names,
    )
    fsdp2_apply_ac(SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)), model)


def lightning_checkpoint(model):
    """What Fabric does where an FSDPStrategy has an activation_checkpointing_policy."""
    from lightning.fabric.strategies.fsdp import _activation_checkpointing_kwargs, _setup_activation_checkpointing

    kinds = {type(block) for block in blocks(model)}
    _setup_activation_checkpointing(model, _activation_checkpointing_kwargs(None, kinds))


def torchtitan_checkpoint(model, kind="FullAC"):
    from torchtitan.distributed import activation_checkpoint

    policy_class = getattr(activation_checkpoint, kind)
    found = blocks(model)
    lists = [parent for parent in model.modules() if any(child in found for child in parent.children())]
    for parent in lists:
        holder = torch.nn.Module()
        holder.layers = parent
        policy_class(policy_class.Config()).apply(holder)


def torchtitan_selective(model):
    torchtitan_checkpoint(model, "SelectiveAC")


def fairscale_checkpoint(model):
    from fairscale.nn.checkpoint import checkpoint_wrapper

    for block in blocks(model):
        checkpoint_wrapper(block)


def deepspeed_checkpoint(model):
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    require_gradients_of_inputs(model)
    run_blocks_by(model, deepspeed.checkpointing.checkpoint)


class GeneratorState:
    """A hook of torch_remat's, which leaves random numbers to its users."""

    snapshot = staticmethod(torch.get_rng_state)
    restore = staticmethod(torch.set_rng_state)


def torch_remat_checkpoint(model, hooks=()):
    import torch_remat

    for number, block in enumerate(blocks(model)):
        block.forward = torch_remat.checkpoint(region_name=str(number), recompute_state_hooks=hooks)(block.forward)


def torch_remat_with_hook(model):
    torch_remat_checkpoint(model, (GeneratorState,))


def trl_selective(model):
    """What SFTTrainer does for gradient_checkpointing_kwargs={"selective": True}."""
    from trl.models.selective_activation_checkpointing import enable_selective_activation_checkpointing

    inner = causal_model(model)
    enable_selective_activation_checkpointing(inner)
    inner.gradient_checkpointing_enable()


def trl_offload(model):
    from trl.models.activation_offloading import OffloadActivations

    offload = OffloadActivations()

    def call(**inputs):
        with offload:
            return model(**inputs)

    return call


def streambp(model):
    from streambp import StreamModel

    return StreamModel(model, gradient_accumulation_steps=1, logits_chunk_size=100, checkpoint_chunk_size=500)


# Losses that have no logits as a whole: loss(hidden, weight of the last layer, labels), which are one token ahead.


def causal_model(model):
    """The one of transformers' within a model of peft's."""
    return model.base_model.model if hasattr(model, "peft_config") else model


def with_loss(model, loss):
    inner = causal_model(model)

    def call(input_ids, labels):
        hidden = inner.base_model(input_ids=input_ids).last_hidden_state.flatten(0, 1)
        ahead = torch.nn.functional.pad(labels, (0, 1), value=-100)[:, 1:].flatten()
        return SimpleNamespace(loss=loss(hidden, inner.get_output_embeddings().weight, ahead))

    return call


def torch_loss(model):
    options = torch.nn.LinearCrossEntropyOptions()
    return with_loss(
        model,
        lambda *inputs: torch.nn.functional.linear_cross_entropy(*inputs, ignore_index=-100, options=options),
    )


def liger_loss(model):
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    fused = LigerFusedLinearCrossEntropyLoss()
    return with_loss(model, lambda hidden, weight, labels: fused(weight, hidden, labels))


def cut_cross_entropy_loss(model):
    """Its kernels are for GPUs; for others it has this."""
    from cut_cross_entropy import linear_cross_entropy

    return with_loss(model, functools.partial(linear_cross_entropy, impl="torch_compile"))


def trl_loss(model):
    """What SFTTrainer's loss is made of, in smaller chunks, since these models know few words."""
    from trl.kernels import ChunkedLogProbFunction

    def loss(hidden, weight, labels):
        counted = labels != -100
        log_probs, *_ = ChunkedLogProbFunction.apply(
            hidden, weight, None, labels.clamp(min=0), 1.0, 512, None, 1.0, ("log_probs",)
        )
        return -log_probs.masked_fill(~counted, 0).sum() / counted.sum()

    return with_loss(model, loss)


def remat_head(model):
    import remat

    return remat.wrap(model, budget="25%", head="tiles")


def remat_loss(model):
    import remat

    return with_loss(model, remat.linear_cross_entropy)

"""DeepSpeed's ZeRO. Stage 3 gives parameters empty data between the passes of their layer (`parameter.data = ...`)."""

from __future__ import annotations

import functools
import importlib.util
import logging
import os

import pytest
import torch
from processes import run_on_processes
from scopes import loss_of
from sharding import (
    BATCH,
    STEPS,
    WAYS,
    WIDTH,
    blocks_to_shard,
    bytes_alive,
    check_forward_bytes,
    check_report,
    compare_with_plain,
    scope_of,
)

import remat

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed: see scripts/setup"
)


FORWARD_BYTES = {}  #: that the last step of each way held at the end of its forward pass


def engine_of(stage):
    import deepspeed

    model = blocks_to_shard()
    configuration = {
        "train_micro_batch_size_per_gpu": BATCH,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": stage,
            "overlap_comm": False,
            "reduce_bucket_size": 10_000,
            # As for a model too large for one process: parameters go as soon as their layer has run.
            "stage3_param_persistence_threshold": 100,
            "stage3_prefetch_bucket_size": 1_000,
            "stage3_max_live_parameters": 1_000,
            "stage3_max_reuse_distance": 1,
        },
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=configuration)[0]


def train(stage, rank, how):
    from deepspeed.utils import safe_get_full_fp32_param

    engine = engine_of(stage)
    torch.manual_seed(5 + rank)
    scope, session = scope_of(how)
    losses = []
    remat.memory.start_accounting("cpu")
    for step in range(STEPS):
        measured = step == STEPS - 1
        before = bytes_alive() if measured else 0
        with scope():
            loss = loss_of(engine(torch.randn(BATCH, WIDTH)))
            if measured:
                FORWARD_BYTES[how] = bytes_alive() - before
            engine.backward(loss)
            losses.append(loss.detach())
        check_report(session, must_drop=how not in ("none", "100%"))
        engine.step()
    state = [safe_get_full_fp32_param(parameter) for parameter in engine.module.parameters()]
    engine.destroy()
    return [*losses, *state, torch.get_rng_state()], []


def compare(stage, extensions, rank):
    os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK=str(rank), LOCAL_SIZE="2", TORCH_EXTENSIONS_DIR=str(extensions))
    logging.disable(logging.WARNING)
    import deepspeed

    deepspeed.init_distributed("gloo", verbose=False, dist_init_required=False)
    ways = [way.replace("60%", "80%") for way in WAYS] if stage == 3 else (*WAYS, "40%")
    compare_with_plain(functools.partial(train, stage, rank), f"ZeRO-{stage}", rank, ways)
    check_forward_bytes(FORWARD_BYTES, 0.4 if stage == 3 else 0.9)


@pytest.fixture(scope="module")
def extensions(tmp_path_factory):
    """Where DeepSpeed compiles what it needs. In the user's folder, the lock of a run that was killed is waited for without end."""
    return tmp_path_factory.mktemp("extensions")


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_two_processes(tmp_path, extensions, stage):
    run_on_processes(functools.partial(compare, stage, extensions), tmp_path)

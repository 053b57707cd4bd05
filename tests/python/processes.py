"""gloo groups: of this process alone, and of several processes that run the same function."""

from __future__ import annotations

import contextlib
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import multiprocessing

#: Imported once, before the processes are forked. Not remat: it is to be new in each of them.
PRELOADED = ["torch", "torch.distributed.fsdp", "torch.distributed.tensor.parallel", "torch.distributed.pipelining"]


@contextlib.contextmanager
def group(rank=0, world_size=1, path=None):
    """A group of `world_size` processes that meet at the file `path`; this one is `rank`."""
    with tempfile.TemporaryDirectory() as folder:
        method = f"file://{path or folder + '/store'}"
        dist.init_process_group("gloo", method, rank=rank, world_size=world_size, timeout=timedelta(seconds=60))
        try:
            yield
        finally:
            dist.destroy_process_group()


def work(rank, count, path, queue, body):
    torch.set_num_threads(1)
    try:
        with group(rank, count, path):
            body(rank)
        queue.put((rank, None))
    except BaseException as error:  # what one rank throws would leave the others waiting
        queue.put((rank, repr(error)))
        raise


def run_on_processes(body, folder, count=2):
    """Calls `body(rank)` on `count` new processes that form a group; fails if one of them does."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    queue = context.Queue()
    processes = [context.Process(target=work, args=(rank, count, folder / "store", queue, body)) for rank in range(count)]
    for process in processes:
        process.start()
    try:
        answers = []
        while len(answers) < count and not any(error for _, error in answers):
            answers.append(queue.get(timeout=300))
    finally:
        for process in processes:
            process.join(30 if len(answers) == count else 1)
            process.kill()
    assert [error for _, error in answers] == [None] * count, answers

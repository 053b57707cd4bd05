"""Steps with a disk that values may move to, against plain, and against recomputing alone in the same turns."""

import functools
import os
import tempfile
from dataclasses import replace

from worker import StepError, compare, interleave, peaks

SHARES = {
    "bert": (70, 55, 40, 30, 25, 20),
    "deep": (70, 50, 40, 25, 15, 10),
    "gpt": (60, 40, 24, 18, 14, 12),
    "lstm": (70, 50, 40, 35, 30, 25),
    "mlp": (70, 50, 40, 35, 30, 25),
    "resnet": (70, 50, 40, 30, 25, 20),
    "unet": (70, 55, 45, 38, 35, 30),
    "vit": (70, 55, 40, 30, 25, 20),
}
PAIRS = 3  # of each of the many budgets
#: Steps in which a session tries both plans, with moves and without (src/session/move_trial.h).
STEPS_OF_TRIAL = 8


def moving(bench):
    """With a disk that values may move to, against plain and against recomputing alone: eight models, six budgets."""
    protocol = replace(bench.protocol, pairs=min(PAIRS, bench.protocol.pairs))
    with tempfile.TemporaryDirectory(dir=os.environ.get("REMAT_BENCH_DISK")) as directory:
        disk = {"environment": {"REMAT_BENCH_DISK": directory}}
        for model in bench.only or SHARES:
            for share in SHARES[model]:
                command = f"percent {share}"
                row = {"model": bench.models.get(model, model), "command": command + " moved", "share": share}
                with bench.worker(model) as plain, bench.worker(model) as alone, bench.worker(model, **disk) as moved:
                    try:
                        row |= within(command, protocol, plain, alone, moved)
                    except StepError as error:
                        row["error"] = str(error)
                yield row


def within(command, protocol, plain, alone, moved):
    """The figures of one budget."""
    moved.run("plain")
    alone.run("plain")
    is_refused = False
    try:
        alone.run(command)
    except StepError:
        is_refused = True
    for _ in range(STEPS_OF_TRIAL + protocol.warm_up):
        last = moved.run(command + " moved")
    if not is_refused and last["report"]["values_moved"] == 0:
        return {"nothing_moved": True}  # the plan is the one without a disk: pairs would measure noise
    runs = [functools.partial(plain.run, "plain"), functools.partial(moved.run, command + " moved")]
    if not is_refused:
        runs.append(functools.partial(alone.run, command))
    turns = interleave(protocol, *runs)
    pairs = [turn[:2] for turn in turns]
    row = {"recomputing": {"refused": True}} | compare(pairs) | peaks(pairs)
    if not is_refused:
        row["recomputing"] = compare([(turn[0], turn[2]) for turn in turns])
        row["against_recomputing"] = compare([(turn[2], turn[1]) for turn in turns])
    return row

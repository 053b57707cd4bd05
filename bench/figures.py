"""What is measured: one function per figure, which returns its rows. Targets are what README's table promises."""

import contextlib
import ctypes.util
import functools
import json
import os
import statistics
import subprocess
import sys
from dataclasses import replace

import gap as plans
import integer_program
import peers
from moving import moving
from worker import StepError, Worker, compare, interleave, peaks

SHARES = {
    "gpt": (50, 40, 25),
    "bert": (50, 40, 25),
    "resnet": (50, 35, 25),
    "unet": (50, 35),
    "lstm": (50, 35),
    "mlp": (50, 35),
    "deep": (50, 25),
}


# Processes of each variant, and how many times the protocol's pairs each gives: about five minutes a model.
RECORDING = {"gpt": (2, 1), "resnet": (3, 3), "bert": (2, 1), "mlp": (2, 2), "lstm": (2, 2), "lora": (3, 4)}


class Bench:
    """Where the programs are, how to measure, the batch of each model ("gpt" or "gpt:2"), and the models that `moving` is
    to measure (none: all)."""

    def __init__(self, build, protocol, models, only=()):
        self.build, self.protocol, self.models, self.only = build, protocol, models, only

    def worker(self, model, *arguments, **options):
        return Worker(self.build / "bench" / "bench_step", self.models.get(model, model), *arguments, **options)

    def against_plain(self, model, command):
        """A row: `command` against plain, each in a process of its own, so that neither pays for the other's use of memory;
        bytes of the last step."""
        row = {"model": self.models.get(model, model), "command": command}
        try:
            with self.worker(model) as plain, self.worker(model) as other:
                other.run("plain")  # shares of its peak are asked for
                pairs = interleave(self.protocol, lambda: plain.run("plain"), lambda: other.run(command))
        except StepError as error:
            return row | {"error": str(error)}
        return row | compare(pairs) | peaks(pairs)


def recording(bench):
    """Everything recorded, nothing dropped: time, and bytes of the records. Several processes of each variant, since a
    process's steps differ by a percent or two for where its memory lies; plain is compared with plain in the same turns."""
    rows = []
    for model, (processes, times) in RECORDING.items():
        # Nothing is planned: less warm-up.
        protocol = replace(bench.protocol, warm_up=2, pairs=times * bench.protocol.pairs)
        if model == "lora":  # weights that need no gradients are inputs, which remat must know to be unchanged
            start = functools.partial(peers.Bench(bench.build, protocol.pairs, bench.models).worker, model)
            variants = [
                (lambda start=start, name=name: start(name), "step")
                for name in ("plain", "remat, nothing dropped", "plain")
            ]
        else:
            variants = [(lambda model=model: bench.worker(model), command) for command in ("plain", "record", "plain")]
        turns = []
        for _ in range(processes):
            with contextlib.ExitStack() as stack:
                workers = [(stack.enter_context(start()), command) for start, command in variants]
                turns += interleave(protocol, *(functools.partial(worker.run, command) for worker, command in workers))
        pairs = [(plain, recorded) for plain, recorded, _ in turns]
        row = {"model": bench.models.get(model, model), "command": "record", "processes": processes}
        row |= compare(pairs) | peaks(pairs) | {"plain": compare([(plain, again) for plain, _, again in turns])}
        if "record_bytes" in row.get("report", {}):
            row["record_share"] = row["report"]["record_bytes"] / max(1, row["report"]["held_replaced_bytes"])
        rows.append(row)
    return rows


def operator(bench):
    """Seconds that recording adds to one small operator: the median of several runs."""
    program = [bench.build / "bench" / "bench_record_cost"]
    runs = [
        json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
        for _ in range(bench.protocol.pairs)
    ]
    return [{"record_cost_seconds": statistics.median(run["record_cost_seconds"] for run in runs), "runs": runs}]


def allocator(bench):
    """Plain steps: a process with remat's allocator, or jemalloc keeping its pages, against one with PyTorch's own.
    Gradients are allocated anew."""
    others = {"remat": lambda model: bench.worker(model)}
    if jemalloc := ctypes.util.find_library("jemalloc"):
        kept = {"LD_PRELOAD": jemalloc, "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1"}
        others["jemalloc"] = lambda model: bench.worker(model, "stock", environment=kept)
    rows = []
    for model in ("resnet", "gpt", "mlp"):
        for name, start in others.items():
            with bench.worker(model, "stock") as stock, start(model) as other:
                pairs = interleave(bench.protocol, lambda: stock.run("plain fresh"), lambda: other.run("plain fresh"))
            row = {"model": bench.models.get(model, model), "command": "plain fresh", "allocator": name}
            rows.append(row | compare(pairs))
    return rows


def compute(bench):
    """The policy keep_compute on the ResNet, alone and with a budget of 55 % of plain's activation peak."""
    return [bench.against_plain("resnet", command) for command in ("keep_compute", "keep_within 55")]


def budgets(bench):
    """Planned steps under budgets that leave a share of plain's activation peak."""
    rows = []
    for model, shares in SHARES.items():
        for share in shares:
            rows.append(bench.against_plain(model, f"percent {share}") | {"share": share})
    return rows


def online(bench):
    """The policy that decides when memory runs short, without a plan."""
    return [bench.against_plain("gpt", "percent 50 online") | {"share": 50}]


def half(bench):
    """Half of plain's activation memory, with remat's allocator, against plain with PyTorch's own: is it slower at all?"""
    rows = []
    for model in ("gpt", "bert", "resnet", "mlp"):
        with bench.worker(model, "stock") as stock, bench.worker(model) as other:
            other.run("plain")
            pairs = interleave(bench.protocol, lambda: stock.run("plain"), lambda: other.run("percent 50"))
        row = {"model": bench.models.get(model, model), "command": "percent 50", "allocator": "remat"}
        rows.append(row | compare(pairs))
    return rows


def packing(bench):
    """The same where nothing is held packed: what packing is worth."""
    return [bench.against_plain("gpt", f"percent {share} unpacked") | {"share": share} for share in (50, 25)]


CHANGING = {"bert-lengths": (50, 16), "mixture": (60, 16)}  # percent of the largest step's peak, steps of a round


def changing(bench):
    """Steps whose sizes change: a batch of other lengths, or tokens for other experts, in each. A pair is a round of such
    steps, each of which both make in turn; the budget is a share of the largest peak of plain's first round."""
    rows = []
    peer_bench = peers.Bench(bench.build, bench.protocol.pairs, bench.models)
    for model, (share, steps) in CHANGING.items():
        row = {"model": bench.models.get(model, model), "command": f"percent {share}", "share": share, "steps": steps}
        with peer_bench.worker(model, "plain") as plain:
            peak = max(plain.run(f"step {number}")["activation_peak_bytes"] for number in range(steps))
            try:
                with peer_bench.worker(model, "remat", peak * share // 100) as other:
                    pairs = [changing_round(plain, other, number, steps) for number in range(bench.protocol.pairs + 1)]
            except StepError as error:
                rows.append(row | {"error": str(error)})
                continue
        pairs = pairs[1:]  # the first is recorded
        row |= compare(pairs) | {"plain_activation_peak_bytes": peak}
        row["gradients_equal"] = all(a["gradients"] == b["gradients"] for a, b in pairs)
        row["activation_peak_bytes"] = max(other["activation_peak_bytes"] for _, other in pairs)
        row["over_budget_bytes"] = max(0, row["activation_peak_bytes"] - peak * share // 100)
        row["planned_steps"] = sum(other["planned_steps"] for _, other in pairs) / (steps * len(pairs))
        rows.append(row)
    return rows


def changing_round(plain, other, number, steps):
    """The sums of `steps` steps that both workers make in turn."""
    turns = [(plain.run(line), other.run(line)) for line in (f"step {number * steps + s}" for s in range(steps))]
    sums = []
    for side in zip(*turns):
        total = {key: sum(step[key] for step in side) for key in ("wall", "cpu", "page_faults")}
        total["foreign"] = statistics.mean(step["foreign"] for step in side)
        total["gradients"] = "".join(step["gradients"] for step in side)
        total["activation_peak_bytes"] = max(step["activation_peak_bytes"] for step in side)
        total["planned_steps"] = sum(step.get("report", {}).get("decided_by") == "auto" for step in side)
        sums.append(total)
    return tuple(sums)


def large(bench):
    """The largest batch of BERT-base up to 64 in 40 % of its activation peak."""
    protocol = replace(bench.protocol, pairs=min(5, bench.protocol.pairs), warm_up=4)
    return [Bench(bench.build, protocol, {"bert": "bert:64"} | bench.models).against_plain("bert", "percent 40")]


# What is ten times as deep as what, and how many layers it has.
DEEPER = {"mlp/40": "mlp/400", "cifar-resnet/56": "cifar-resnet/560"}
THOUSAND_LAYERS = "cifar-resnet/998:16"


def depth(bench):
    """Networks ten times as deep in the activation bytes that the shallow one has in plain steps: time per layer. And one of
    a thousand layers in a seventh of its own, a share that its session measures."""
    protocol = replace(bench.protocol, pairs=min(5, bench.protocol.pairs), warm_up=4)
    bench = Bench(bench.build, protocol, bench.models)
    rows = []
    for shallow, deep in DEEPER.items():
        row = {"model": deep, "command": f"activations of {shallow}", "layers": int(deep.partition("/")[2])}
        try:
            with bench.worker(shallow) as plain, bench.worker(deep) as other:
                peak = plain.run("plain")["activation_peak_bytes"]
                expected = other.run("plain")
                command = f"activations {peak}"
                pairs = interleave(protocol, lambda: plain.run("plain"), lambda: other.run(command))
        except StepError as error:
            rows.append(row | {"error": str(error)})
            continue
        deeper = row["layers"] / int(shallow.partition("/")[2])
        row |= compare(pairs) | peaks(pairs) | {"deeper": deeper}
        row["gradients_equal"] = all(within["gradients"] == expected["gradients"] for _, within in pairs)
        row["deep_plain_activation_peak_bytes"] = expected["activation_peak_bytes"]
        rows.append(row | {"time_per_layer_ratio": row["wall_ratio"] / deeper})
    return [*rows, bench.against_plain(THOUSAND_LAYERS, f"share {100 / 7:.2f}")]


def planning(bench):
    """How long `auto` plans a transformer's step on one core, by its number of operators, and in how much memory."""
    rows = []
    for operators in (500, 1000, 2500, 5000, 10000, 25000, 100000):
        program = [bench.build / "bench" / "bench_planning", str(operators)]
        runs = [
            json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
            for _ in range(bench.protocol.pairs)
        ]
        rows.append(sorted(runs, key=lambda run: run["planning_seconds"])[len(runs) // 2])
    return rows


# Kinds of generated graphs (bench/generated_graphs.h) and their numbers of operators. Nothing is tuned on these seeds.
HELD_OUT = {
    kind: (60, 250, 550) for kind in ("chain", "transformer", "resnet", "unet", "lstm", "experts", "dag")
}
HELD_OUT_SEED = 1001
LARGE = {"resnet": (500, 100_000), "transformer": (500, 100_000)}  # `auto` alone


def planners(bench):
    """What each planner makes of graphs on which nothing was tuned: recompute in percent of the step, by budget. Plans do
    not depend on the machine; `seconds` of planning do."""
    program = bench.build / "bench" / "bench_planners"

    def run(kind, operators, *names):
        graph = f"{kind}:{operators}:{HELD_OUT_SEED}"
        done = subprocess.run([program, graph, *names], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    rows = [judged(run(kind, operators)) for kind, sizes in HELD_OUT.items() for operators in sizes]
    return rows + [judged(run(kind, operators, "auto")) for kind, sizes in LARGE.items() for operators in sizes]


def judged(result):
    """A row of `planners`: at how many budgets `auto` is slower than another planner, or has no plan where one has."""
    extra = {}
    for row in result["rows"]:
        extra.setdefault(row["planner"], {})[row["share"]] = row["extra_percent"]
    others = [plans for planner, plans in extra.items() if planner not in ("auto", "refined")]
    worse = none = 0
    for share, auto in extra["auto"].items():
        found = [plans[share] for plans in others if plans[share] is not None]
        none += auto is None and bool(found)
        worse += auto is not None and bool(found) and auto > min(found) * (1 + 1e-9)
    seconds = max(row["seconds"] for row in result["rows"] if row["planner"] == "auto")
    return {"graph": result["graph"], "operators": result["operators"], "worse": worse, "none": none} | {
        "auto_seconds": seconds,
        "extra_percent": extra,
    }


def command_on_graphs(bench):
    """The command remat for figures about plans, and the batch of each model."""
    batches = {model: name.partition(":")[2] for model, name in bench.models.items()}
    return plans.Planner(bench.build / "app" / "remat", bench.build / "bench" / "gap"), batches


def gap(bench):
    """Seconds of auto's plans against the exact optimum of small graphs, and a proven lower bound of the models'."""
    if integer_program.highspy is None:
        sys.exit("bench: the figure gap needs highspy; run: make setup && .venv/bin/python bench/run.py gap")
    planner, batches = command_on_graphs(bench)
    seconds = min(60, 7 * bench.protocol.pairs)  # for each bound: fewer pairs are a trial
    # First, and at once: operators are timed then, and the bounds take minutes.
    graphs = {model: planner.record(model, batches.get(model)) for model in SHARES}
    small = list(plans.small_rows(planner))  # seconds; the models take a minute for each bound
    return [*plans.model_rows(planner, graphs, seconds), *small]


def smallest(bench):
    """The smallest activation peak of any plan. `segments`, tried in every number, is what checkpoints around blocks do."""
    planner, batches = command_on_graphs(bench)
    return [planner.smallest(model, batches.get(model)) for model in SHARES]


FIGURES = {
    f.__name__: f
    for f in (recording, operator, allocator, compute, budgets, online, half, packing, moving, changing, large, depth, planning, planners, gap, smallest)
}

"""Many random programs of every kind, and a page of what came of them:

    python tests/python/many_programs.py --programs 1500 --markdown docs/random-programs.md

runs so many programs of each kind, those of tests/fuzz as well as Python's own, on as many processes as there are cores.
The page says how many there were, what they did, and what was wrong.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARDS = 4  # of each test in tests/fuzz/fuzz_test.cpp
FUZZ = {
    "Fuzz.SameBitsWhateverIsDropped": "ordinary operators, everything or a random choice dropped",
    "Fuzz.SameBitsFollowingAPlan": "ordinary operators, plans followed",
    "Fuzz.SameBitsWithinEveryBudget": "ordinary operators, budgets down to the smallest",
    "FuzzKinds.SameBitsOrAnErrorWhereStoragesAreEmptied": "storages emptied and filled again",
    "FuzzKinds.SameBitsOrAnErrorWhereInputsAreWrittenUnseen": "inputs written to through pointers",
    "FuzzKinds.SameBitsOrAnErrorOfVerifyWhereAnythingIsWrittenUnseen": "anything written to through pointers, `verify`",
    "FuzzKinds.SameBitsOrAnErrorWithSparseTensorsOverWrittenOnes": "sparse tensors over dense ones that are written to",
    "FuzzKinds.SameBitsWhereScriptsChangeTheirLists": "TorchScript that changes its lists",
    "FuzzKinds.SameBitsWhereBackwardMakesGraphs": "double backward",
    "FuzzKinds.SameBitsOnSeveralThreads": "three threads at once",
    "DeviceFuzz.SameBitsWhateverIsDropped": "simulated device: everything or a random choice dropped",
    "DeviceFuzz.SameBitsFollowingAPlan": "simulated device: plans followed",
    "DeviceFuzz.SameBitsWhereStepsChange": "simulated device: steps of changing sizes and operators",
    "DeviceFuzz.SameBitsWithinEveryBudget": "simulated device: budgets down to the smallest",
}
PYTHON = {
    "ordinary": "Python: ordinary operators",
    "doors": "Python: writes by NumPy, DLPack, `apply_`, `map_`",
    "pointers": "Python: writes by pointers and threads, `verify`",
    "emptied": "Python: parameters emptied and filled, as FSDP2 does",
    "settings": "Python: settings changed, inherited and watched",
    "kernels": "Python: kernels registered and removed",
    "modes": "Python: modes around backward",
    "collectives": "Python: collectives",
    "forks": "Python: forks between and inside steps",
    "loops": "Python: wrapped models whose results get no backward",
    "iterations": "Python: two wrapped models whose results are held",
}
HEAD = (
    "kind",
    "programs",
    "runs under remat",
    "values dropped",
    "operators replayed",
    "refused with an error",
    "wrong",
)


def fuzz(test: str, shard: int, programs: int, build: Path) -> list[int]:
    """A row's numbers of a shard of a test in C++."""
    environment = os.environ | {"REMAT_FUZZ_PROGRAMS": str(programs), "OMP_WAIT_POLICY": "passive"}
    program = "device_fuzz_tests" if test.startswith("Device") else "fuzz_tests"  # the former for each kind of stream
    command = [build / "tests" / program, f"--gtest_filter=*/{test}/{shard}:*/{test}/{shard}_*"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wrong = len(re.findall(r"^program \d+ \(REMAT_FUZZ_SEED", done.stdout, re.MULTILINE))
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        wrong = max(wrong, 1)
    tallies = re.findall(
        r"(\d+) programs .*?, (\d+) runs, (\d+) refused, \d+ operators recorded, (\d+) replayed, (\d+) values dropped"
        r".*?refused (\d+),",
        done.stdout,
    )
    if not tallies:
        return [0, 0, 0, 0, 0, max(wrong, 1)]
    count, runs, refused, replayed, dropped, too_little = (
        sum(map(int, numbers)) for numbers in zip(*tallies, strict=True)
    )
    return [count, runs, dropped, replayed, refused + too_little, wrong]


def python(kind: str, seeds: range) -> list[int]:
    """The same of some programs in Python, whose values and operators nobody counts."""
    import processes
    import random_collectives  # noqa: F401
    import random_loops
    import random_programs
    import random_surroundings  # noqa: F401
    import torch

    torch.set_num_threads(1)
    counts: dict[str, int] = {}
    problems: list[str] = []
    with processes.group() if kind == "collectives" else contextlib.nullcontext():
        for seed in seeds:
            check = random_loops.CHECKS.get(kind)
            problem = random_programs.check(kind, seed, counts) if check is None else check(seed, counts)
            if problem:
                problems.append(problem)
                print(problem, file=sys.stderr)
    refused = sum(counts.get(name, 0) for name in ("too little", "refused", "found by verify"))
    return [counts["programs"], counts.get("same", 0) + refused + len(problems), 0, 0, refused, len(problems)]


def in_process(kind: str, seeds: range) -> list[int]:
    """In a process of its own: kinds leave groups, threads and children."""
    code = f"import many_programs; print('row', *many_programs.python({kind!r}, {seeds!r}))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "REMAT_VALIDATE": "1", "OMP_WAIT_POLICY": "passive"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    row = re.search(r"^row (.*)$", done.stdout, re.MULTILINE)
    return [int(n) for n in row.group(1).split()] if row and done.returncode == 0 else [len(seeds), 0, 0, 0, 0, 1]


def page(rows: list[tuple[str, list[int]]]) -> str:
    import torch

    total = [sum(numbers) for numbers in zip(*(row for _, row in rows), strict=True)]
    cells = [(name, *(f"{n:,}" if n or i in (0, 1, 4, 5) else "-" for i, n in enumerate(row))) for name, row in rows]
    cells.append(("all", *(f"{n:,}" for n in total)))
    lines = ["| " + " | ".join(line) + " |" for line in (HEAD, ["---"] + ["---:"] * (len(HEAD) - 1), *cells)]
    return (
        "# Random programs under remat\n\n"
        "Each program is a training step of random operators that runs plain and in several ways under remat: everything\n"
        "dropped, plans followed, budgets held. *Wrong* is a program with a bit that differs (losses, gradients, buffers,\n"
        "generator states), a budget passed, memory left, a broken invariant of the tape, or an error where none is due.\n"
        "*Refused*: budgets too small for any plan, and memory that was changed behind remat's back and found to be.\n"
        "Written by `tests/python/many_programs.py`; a sample of it is among the tests.\n\n"
        f"LibTorch {torch.__version__.partition('+')[0]}.\n\n" + "\n".join(lines) + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1500, help="of each kind (default: %(default)s)")
    parser.add_argument("--markdown", type=Path, help="where the page goes")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--kinds", nargs="*", default=[*FUZZ, *PYTHON], help="names of tests, or kinds of Python's")
    args = parser.parse_args()
    rows: dict[str, list[int]] = {kind: [0] * (len(HEAD) - 1) for kind in args.kinds}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {}
        for kind in args.kinds:
            for shard in range(SHARDS):
                if kind in FUZZ:
                    jobs[pool.submit(fuzz, kind, shard, args.programs, args.build)] = kind
                else:
                    seeds = range(1 + shard * args.programs // SHARDS, 1 + (shard + 1) * args.programs // SHARDS)
                    jobs[pool.submit(in_process, kind, seeds)] = kind
        for job in concurrent.futures.as_completed(jobs):
            kind = jobs[job]
            rows[kind] = [a + b for a, b in zip(rows[kind], job.result(), strict=True)]
            print(kind, *job.result(), flush=True)
    text = page([((FUZZ | PYTHON)[kind], row) for kind, row in rows.items()])
    print(text)
    if args.markdown:
        args.markdown.write_text(text, encoding="utf-8")
    sys.exit(any(row[-1] for row in rows.values()))


if __name__ == "__main__":
    main()

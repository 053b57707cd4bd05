"""Budgets in percent, in a process of their own: what the operating system sees."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import contextlib, json, resource, sys
import torch
import remat

torch.set_num_threads(1)
remat.memory.start_accounting("cpu")  # the same allocator, plain and not
budget = sys.argv[1]
model = torch.nn.Sequential(torch.nn.Linear(64, 64), *[torch.nn.Sigmoid() for _ in range(80)])
x = torch.randn(1 << 14, 64)  # 4 MiB
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
session = None if budget == "plain" else remat.Session(budget=budget, device="cpu")
reports = []
for _ in range(3):
    torch.manual_seed(5)
    with session.step() if session else contextlib.nullcontext():
        loss = model(x).square().mean()
        loss.backward()
    value = loss.item()
    del loss
    model.zero_grad()
    if session:
        report = session.report()
        reports.append([report.activation_peak_bytes, report.plain_activation_peak_bytes])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"grown": (after - before) << 10, "reports": reports, "loss": value.hex()}))
"""


def grown(budget: str) -> dict:
    run = subprocess.run([sys.executable, "-c", SCRIPT, budget], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def test_a_share_lowers_the_peak_of_the_process():
    plain, share = grown("plain"), grown("40%")
    assert share["loss"] == plain["loss"]
    for peak, plain_peak in share["reports"]:
        assert peak <= 0.4 * plain_peak
    assert plain["grown"] > 250 << 20
    assert share["grown"] < 0.6 * plain["grown"]

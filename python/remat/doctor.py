"""What is installed, what of it remat can use, and whether a small training run keeps its promises here."""

from __future__ import annotations

import importlib.util
import platform
import warnings
from importlib import metadata
from typing import TextIO

import torch
from torch import nn

import remat
from remat import _C
from remat.device import HOST, accelerators, fork_generators, is_host, random_state, seed_generator

# Libraries that remat has something for: the name to import, and what it is.
_INTEGRATIONS = {
    "transformers": "remat.integrations.transformers.RematCallback, remat.enable()",
    "accelerate": "remat.wrap()",
    "peft": "remat.wrap(), remat.enable()",
    "lightning": "remat.integrations.lightning.RematCallback",
}


def _version(name: str) -> str | None:
    if importlib.util.find_spec(name) is None:
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "?"


def _train(budget: str | None, device: torch.device) -> tuple[list[torch.Tensor], remat.Report | None]:
    """Three steps of a small network with dropout; what they leave, and the last step's report."""
    for each in {torch.device(HOST), device}:
        seed_generator(each, 0)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64)) for _ in range(6))
    ).to(device)
    session = None
    if budget is not None:
        remat.wrap(model, budget=budget)
        session = remat.session_of(model)
    for _ in range(3):
        model.zero_grad()
        model(torch.randn(256, 64, device=device)).square().mean().backward()
    report = None if session is None else session.report()
    return [p.grad.clone() for p in model.parameters()] + [torch.get_rng_state(), random_state(device)], report


def _trial(device: torch.device) -> tuple[str, bool]:
    others = [] if is_host(device) else [device]
    with fork_generators(others), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no real device was tried: this one is
        plain, _ = _train(None, device)
        ours, report = _train("50%", device)
    if not all(torch.equal(a, b) for a, b in zip(plain, ours)):
        return "FAILED: gradients or random numbers differ from plain; please report it", False
    if report.peak_bytes > report.budget_bytes:
        return f"FAILED: {report.peak_bytes - report.budget_bytes} bytes over the budget; please report it", False
    reserved = f", with {_C.format_bytes(report.reserved_peak_bytes)} reserved" if report.reserved_peak_bytes else ""
    share = 100 * report.activation_peak_bytes / report.plain_activation_peak_bytes
    packs = "" if is_host(device) else "; masks and indices are not packed there, only dropped"
    return f"same bits as plain in {share:.0f} % of its activation memory{reserved}{packs}", True


def _trial_of_accelerator(device: torch.device) -> tuple[str, bool]:
    try:
        remat.memory.start_accounting(device)
        return _trial(device)
    except remat.Error as error:
        return f"NOT supported: {error}", True
    except RuntimeError as error:  # of the device itself
        return f"FAILED: {error}", False


def examine(out: TextIO) -> bool:
    """Writes a line for each finding to `out`. Returns whether remat works here."""
    try:
        remat.memory.start_accounting()
        allocator, works = "remat's (counts every byte, keeps freed blocks for reuse)", True
    except remat.Error as error:
        allocator, works = f"NOT remat's: {error}", False
    devices = accelerators()
    lines = [
        ("remat", f"{remat.__version__}, built with torch {_C.torch_version}"),
        ("torch", f"{torch.__version__}, {torch.get_num_threads()} threads"),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("CPU allocator", allocator),
        ("CPU memory", f"{_C.format_bytes(remat.memory.limit(HOST))} (the machine's, or a limit of its container or of ulimit)"),
        ("accelerators", ", ".join(map(str, devices)) or "none"),
    ]
    for name, what in _INTEGRATIONS.items():
        version = _version(name)
        lines.append((name, f"{version}: {what}" if version else "not installed"))
    if works:
        for device in [torch.device(HOST), *devices]:
            result, passed = _trial(device) if is_host(device) else _trial_of_accelerator(device)
            lines.append((f"trial on {device}", result))
            works = works and passed
    width = max(len(name) for name, _ in lines) + 2
    for name, finding in lines:
        out.write(f"{name:<{width}}{finding}\n")
    return works

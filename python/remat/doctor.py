"""What is installed, what of it remat can use, and whether a small training run keeps its promises here."""

from __future__ import annotations

import importlib.util
import platform
from importlib import metadata
from typing import TextIO

import torch
from torch import nn

import remat
from remat import _C

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


def _train(budget: str | None) -> tuple[list[torch.Tensor], remat.Report | None]:
    """Three steps of a small network with dropout; what they leave, and the last step's report."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64)) for _ in range(6))
    )
    session = None
    if budget is not None:
        remat.wrap(model, budget=budget, device="cpu")
        session = remat.session_of(model)
    for _ in range(3):
        model.zero_grad()
        model(torch.randn(256, 64)).square().mean().backward()
    report = None if session is None else session.report()
    return [p.grad.clone() for p in model.parameters()] + [torch.get_rng_state()], report


def _trial() -> tuple[str, bool]:
    state = torch.get_rng_state()
    try:
        plain, _ = _train(None)
        ours, report = _train("50%")
    finally:
        torch.set_rng_state(state)
    if not all(torch.equal(a, b) for a, b in zip(plain, ours)):
        return "FAILED: gradients or random numbers differ from plain; please report it", False
    if report.peak_bytes > report.budget_bytes:
        return f"FAILED: {report.peak_bytes - report.budget_bytes} bytes over the budget; please report it", False
    share = 100 * report.activation_peak_bytes / report.plain_activation_peak_bytes
    return f"same bits as plain in {share:.0f} % of its activation memory", True


def examine(out: TextIO) -> bool:
    """Writes a line for each finding to `out`. Returns whether remat works here."""
    try:
        remat.memory.start_accounting()
        allocator, works = "remat's (counts every byte, keeps freed blocks for reuse)", True
    except remat.Error as error:
        allocator, works = f"NOT remat's: {error}", False
    cuda = f"{torch.cuda.device_count()} device(s)" if torch.cuda.is_available() else "none"
    lines = [
        ("remat", f"{remat.__version__}, built with torch {_C.torch_version}"),
        ("torch", f"{torch.__version__}, {torch.get_num_threads()} threads"),
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("CPU allocator", allocator),
        ("CPU memory", f"{_C.format_bytes(remat.memory.limit('cpu'))} (the machine's, or its container's limit)"),
        ("CUDA", cuda),
    ]
    for name, what in _INTEGRATIONS.items():
        version = _version(name)
        lines.append((name, f"{version}: {what}" if version else "not installed"))
    if works:
        result, works = _trial()
        lines.append(("trial", result))
    width = max(len(name) for name, _ in lines) + 2
    for name, finding in lines:
        out.write(f"{name:<{width}}{finding}\n")
    return works

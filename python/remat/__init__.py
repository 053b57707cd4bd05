"""remat: train PyTorch models in the memory you have.

Name a number of bytes: the run stays under it, or a BudgetError says which number to try next. The same bits as without
remat, no change to model code, which is never run twice::

    session = remat.Session(budget="6GiB")
    with session.step():
        loss = model(x)
        loss.backward()
"""

from __future__ import annotations

import torch  # its libraries must be there before remat._C

from remat._load import _C  # checks versions
from remat import compiled, memory, scripting, untracked_writes
from remat.audit.result import AuditResult
from remat.audit.run import audit
from remat.blocks import disable, enable, find_blocks
from remat.budget import Pool
from remat.checkpoint import checkpoint, checkpoint_sequential
from remat.compile_blocks import compile
from remat.errors import BudgetError, Error, InternalError
from remat.fit import Fit, FitPoint, FitSplit, fit, fit_budget, fit_sizes
from remat.operators import not_repeatable, repeatable
from remat.optimizer_in_backward import OptimizerInBackward, optimizer_in_backward
from remat.paged import PagedOptimizer, PagingReport, paged
from remat.plan import Plan
from remat.planning import Graph, make_plan, plan_curve
from remat.policy import keep, policy
from remat.report import ReplayedOperator, Report
from remat.session import Session, Step, list_planners
from remat.stored_gradient import StoredGradient
from remat.tiles import TileChoice, last_tile_choice, linear_cross_entropy, tiled_mlp
from remat.wrap import session_of, unwrap, wrap

__version__ = _C.version
__all__ = [
    "AuditResult",
    "BudgetError",
    "Error",
    "Fit",
    "FitPoint",
    "FitSplit",
    "Graph",
    "InternalError",
    "OptimizerInBackward",
    "PagedOptimizer",
    "PagingReport",
    "Plan",
    "Pool",
    "ReplayedOperator",
    "Report",
    "Session",
    "Step",
    "StoredGradient",
    "TileChoice",
    "audit",
    "checkpoint",
    "checkpoint_sequential",
    "compile",
    "disable",
    "enable",
    "find_blocks",
    "fit",
    "fit_budget",
    "fit_sizes",
    "keep",
    "last_tile_choice",
    "linear_cross_entropy",
    "list_planners",
    "make_plan",
    "memory",
    "not_repeatable",
    "optimizer_in_backward",
    "paged",
    "plan_curve",
    "policy",
    "repeatable",
    "session_of",
    "tiled_mlp",
    "unwrap",
    "wrap",
]

del compiled, scripting, torch, untracked_writes


def __dir__() -> list[str]:
    """The public names, without the modules that they come from."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})

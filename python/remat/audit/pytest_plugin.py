"""A fixture for pytest: ``pytest_plugins = ["remat.audit.pytest_plugin"]`` in a conftest.py.

It is no entry point, since every run of pytest would import torch then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from remat.audit.result import AuditResult
from remat.audit.run import audit


@pytest.fixture
def remat_audit() -> Callable[..., AuditResult]:
    """``remat.audit()``, which fails the test, with the table, where a way has other bits than plain."""

    def check(subject: Any, *args: Any, **options: Any) -> AuditResult:
        __tracebackhide__ = True
        result = audit(subject, *args, **options)
        if not result.same:
            pytest.fail(f"ways to save memory change the training\n{result}", pytrace=False)
        return result

    return check

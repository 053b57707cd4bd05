"""Loads the compiled module, or says why it cannot be."""

from __future__ import annotations

import torch

try:
    from remat import _C
except ImportError as error:
    raise ImportError(
        f"[remat] its compiled module does not load ({error}); it is made for one version of torch, and torch here is "
        f"{torch.__version__}: install remat again, with this torch in place"
    ) from error

_built, _here = (version.split("+")[0].rsplit(".", 1)[0] for version in (_C.torch_version, torch.__version__))
if _built != _here:
    raise ImportError(
        f"[remat] it was built with torch {_C.torch_version}, and torch here is {torch.__version__}; install remat "
        "again, with this torch in place"
    )

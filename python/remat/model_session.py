"""Sessions that belong to a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from remat.session import Session


class ModelSession:
    """A model's session: made when it is first asked for, on the device of the model's first parameter unless the
    options name one.

    Args:
        options: those of :class:`remat.Session`. Raises Error for what it refuses.

    Copies and pickles have the options, and make a session of their own.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        device = options.get("device")
        Session(**{**options, "device": "cpu" if device is None else device})  # bad options are an error here
        self.__setstate__({"options": options})

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._options = state["options"]
        self._session: Session | None = None
        self._device: Any = None

    def of(self, model: nn.Module) -> Session:
        """The session for `model`; another one where the model has moved to another device since."""
        device = self._options.get("device")
        if device is None:
            device = _device_of(model)
        if self._session is None or device != self._device:
            self._session = Session(**{**self._options, "device": device})
            self._device = device
        return self._session

    def get(self) -> Session | None:
        """The session, if one has been made."""
        return self._session


def _device_of(model: nn.Module) -> torch.device | None:
    """Of the model's first parameter; None where there is none, or sessions do not know such a device."""
    parameter = next(model.parameters(), None)
    return parameter.device if parameter is not None and parameter.device.type in ("cpu", "cuda") else None

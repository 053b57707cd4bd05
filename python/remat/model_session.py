"""Sessions that belong to a model."""

from __future__ import annotations

import gc
import inspect
import weakref
from typing import Any

import torch
from torch import nn

from remat.device import HOST, device_of_model
from remat.errors import Error
from remat.ranks import world
from remat.session import Session


def session_options() -> list[str]:
    """Those of a Session that a wrapped model may have."""
    return [name for name in inspect.signature(Session).parameters if name != "process_group"]


class ModelSession:
    """A model's session: made when it is first asked for, on the device of the model's first parameter unless the
    options name one.

    Args:
        options: those of :class:`remat.Session`, but its process_group. Raises Error for what it refuses, TypeError for
            names that it does not have.
        agrees: its steps begin and end on all processes of torch.distributed, where there are several: sessions agree.

    Copies and pickles have the options, and make a session of their own.
    """

    def __init__(self, options: dict[str, Any], agrees: bool = False) -> None:
        if options.get("process_group") is not None:
            raise Error(
                "[session] process_group is for a remat.Session, whose steps begin and end where the program says, on all "
                "processes; put `with session.step():` around each step of the loop (for the Trainers of transformers and "
                "Lightning, RematCallback has the group of all processes by itself)"
            )
        known = session_options()
        if unknown := sorted(options.keys() - known):
            raise TypeError(f"[session] there is no option {', '.join(unknown)}; there are {', '.join(known)}")
        device = options.get("device")
        Session(**{**options, "device": HOST if device is None else device})  # bad options are an error here
        self.__setstate__({"options": options, "agrees": agrees})

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self._options_now(), "agrees": self.agrees}

    def _options_now(self) -> dict[str, Any]:
        """With the budget that the session has been given since."""
        return self._options if self._session is None else {**self._options, "budget": self._session.asked_budget}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._options, self.agrees = state["options"], state["agrees"]
        self._session: Session | None = None
        self._device: Any = None

    def of(self, model: nn.Module) -> Session:
        """The session for `model`; another one where the model has moved to another device since."""
        device = self._options.get("device")
        if device is None:
            device = device_of_model(model)
        if self._session is None or device != self._device:
            # A model before this one is in reference cycles if it was compiled. Freed in the first step, its memory would
            # be taken off what that step takes, which a percentage is of.
            gc.collect()
            group = world() if self.agrees else None
            self._session = Session(**{**self._options_now(), "device": device, "process_group": group})
            self._session._model = weakref.ref(model)
            self._device = device
        return self._session

    def get(self) -> Session | None:
        """The session, if one has been made."""
        return self._session

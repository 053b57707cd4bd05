"""Stands in the place of a method of a Trainer (or of Lightning's strategy), such as its training_step() while it trains."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

Step = Callable[..., Any]


class ReplacedStep:
    """``owner.training_step``, or another `method`, from now on: calls `run` with what was there and the arguments. It
    holds the owner weakly, which need not wait for the garbage collector.

    After :meth:`put_back` it only calls what was there: others may have kept it, to put it back themselves. So does one
    that came into a copy of the owner.
    """

    def __init__(self, owner: Any, run: Step, method: str = "training_step") -> None:
        own = vars(owner).get(method)
        while isinstance(own, ReplacedStep):  # left there by an exception, or by somebody who put it back
            own = own._own
        self._own: Step | None = own  # the user's, if there was one
        self._owner = weakref.ref(owner)
        self._run: Step | None = run
        self._method = method
        setattr(owner, method, self)

    @property
    def owner(self) -> Any:
        """None when it is gone."""
        return self._owner()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._run is None:
            return self._call_own(*args, **kwargs)
        return self._run(self._call_own, *args, **kwargs)

    def _call_own(self, *args: Any, **kwargs: Any) -> Any:
        if self._own is not None:
            return self._own(*args, **kwargs)
        return getattr(type(self.owner), self._method)(self.owner, *args, **kwargs)

    def put_back(self) -> None:
        self._run = None
        if self.owner is None or vars(self.owner).get(self._method) is not self:  # somebody is around this one
            return
        if self._own is not None:
            setattr(self.owner, self._method, self._own)
        else:
            delattr(self.owner, self._method)  # what the class has is seen again

    def __deepcopy__(self, memo: dict[int, Any]) -> ReplacedStep:
        copied = object.__new__(ReplacedStep)
        memo[id(self)] = copied
        owner = memo.get(id(self.owner), self.owner)
        copied._owner, copied._run, copied._own = weakref.ref(owner), None, copy.deepcopy(self._own, memo)
        copied._method = self._method
        return copied

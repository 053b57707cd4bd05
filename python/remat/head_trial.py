"""Whether a head's loss is made in tiles or whole, by what the steps of a session take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from remat import _C

if TYPE_CHECKING:
    from remat.session import Session


class HeadTrial:
    """For one head, called once in a step of a session.

    Args:
        session: what the steps are of; None as long as there is none.
    """

    def __init__(self, session: Callable[[], Session | None]) -> None:
        self._session = session
        self._trial = _C.HeadTrial()
        self._step: tuple[int, bool, int] | None = None  # in progress: its number, whether it has tiles, bytes of logits

    def wants_tiles(self, logits_bytes: int) -> bool:
        """For the step in progress."""
        session = self._session()
        if session is None or not session.has_budget_in_bytes:
            return True
        last = session.last_report
        if last is not None and self._step is not None and (last.step, last.completed) == (self._step[0], True):
            _, tiles, of_bytes = self._step
            seconds = last.step_seconds - last.planning_seconds
            self._trial.note(tiles, of_bytes, last.budget_bytes, seconds, lambda: session.min_budget_bytes() or 2**62)
        wants = self._trial.wants_tiles(logits_bytes)
        self._step = ((0 if last is None else last.step) + 1, wants, logits_bytes)
        return wants

    def why_whole(self) -> str:
        """Where tiles are not wanted."""
        if not self._trial.is_over:
            return "the budget has room, and steps are compared"
        whole, tiles = self._trial.seconds_whole, self._trial.seconds_in_tiles
        return f"the shortest step took {whole:.3g} s, in tiles {tiles:.3g} s"

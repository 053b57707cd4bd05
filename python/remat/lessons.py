"""What a wrapped model's steps have shown of its results: which of them get a backward, and which are held for something
else, for a log or a list. The first time a step waits, and what comes of it decides."""

from __future__ import annotations

from collections.abc import Iterable

from remat.results import Call, Place, Result


class Lessons:
    def __init__(self) -> None:
        # Whether a backward comes to the result in this place after one has been through others of the same call.
        self.comes_later: dict[Place, bool] = {}
        # The last of the graphs that a backward has retained was freed without another backward.
        self.retained_in_vain = False
        # So was a call that no backward had come to when the next began: after one through others, or before any.
        self.left_in_vain = {True: False, False: False}

    def came(self, call: Call) -> None:
        """A backward has come to a result of `call`, maybe later than was waited for."""
        if call.retained:
            self.retained_in_vain = False
        if call.left_after is not None:
            self.left_in_vain[call.left_after] = False

    def came_late(self, result: Result) -> None:
        """After the end of its step."""
        if result.place in self.comes_later:
            self.comes_later[result.place] = True
        self.came(result.call)

    def did_not_come(self, places: Iterable[Place]) -> None:
        self.comes_later.update((place, False) for place in places)

    def rest_of(self, call: Call) -> list[Result]:
        """At the end of a backward through results of `call`: those to which another may come, as where a model has two
        losses."""
        rest = []
        for result in call.results():
            result.passed = result.passed or result.reached
            if not result.passed:
                if result.place not in self.comes_later and result.is_cut_off():
                    self.comes_later[result.place] = False
                if self.comes_later.get(result.place, True):
                    rest.append(result)
        return rest

"""When the step of a wrapped model is over: what has come to the results of its calls, and for which of them it waits.

A result has a state, and what backward passes do changes it: `AFTER`. At three moments the step asks for each result
whether it waits for a backward of it: `WAITS`. It is over if it waits for none. Where that cannot be known, as of a
result that may be a second loss or only be held for a log, it waits, unless that was in vain the last time.
"""

from __future__ import annotations

import weakref
from enum import Enum, IntEnum, auto

import torch

from remat.results import unseen_by_torch_functions

_MOST_LATE_CALLS = 32  # in a step that may wait for ever: the records of all are held until it ends


class State(Enum):
    NEW = auto()  # no backward has come to it, nor ended since its call
    LEFT = auto()  # one has ended since, through older calls or another model's
    OLDER = auto()  # one has been through a later call
    BESIDE = auto()  # one has been through other results of the same call
    REACHED = auto()  # one has come to it, and not ended: or it has failed
    KEPT = auto()  # one has been through it and left the graph there: retain_graph, create_graph
    PASSED = auto()  # one has been through it and freed its graph, or a part of it


class Event(Enum):
    """What backward passes do, to a result."""

    COMES = auto()  # one comes to it
    KEEPS = auto()  # it ends, and has left the graph there
    FREES_CALL = auto()  # it ends, and has freed the graphs of those results of this call that it came to
    FREES_LATER = auto()  # the same of a later call, and of none of this call
    FREES_KEPT = auto()  # one of gradients (create_graph) frees graphs without coming to their results
    ENDED = auto()  # as the next call begins: one has ended in the step since the last call, wherever it went


class Moment(IntEnum):
    BACKWARD_ENDS = 0  # one that has come to a result, and has freed graphs
    CALL = 1  # a call of the model begins
    OTHERS_CALL = 2  # a call of another wrapped model begins, or one on another thread


class Answer(Enum):
    WAIT = auto()
    ASK = auto()  # wait, unless that was in vain the last time
    OVER = auto()


AFTER = {
    (State.NEW, Event.FREES_CALL): State.BESIDE,
    (State.LEFT, Event.FREES_CALL): State.BESIDE,
    (State.OLDER, Event.FREES_CALL): State.BESIDE,
    (State.KEPT, Event.FREES_CALL): State.BESIDE,
    (State.NEW, Event.FREES_LATER): State.OLDER,
    (State.LEFT, Event.FREES_LATER): State.OLDER,
    (State.KEPT, Event.FREES_LATER): State.OLDER,
    (State.NEW, Event.ENDED): State.LEFT,
    (State.REACHED, Event.KEEPS): State.KEPT,
    (State.REACHED, Event.FREES_CALL): State.PASSED,
    (State.KEPT, Event.FREES_KEPT): State.PASSED,
    (State.NEW, Event.COMES): State.REACHED,
    (State.LEFT, Event.COMES): State.REACHED,
    (State.OLDER, Event.COMES): State.REACHED,
    (State.BESIDE, Event.COMES): State.REACHED,
    (State.KEPT, Event.COMES): State.REACHED,
}
"""The state after an event; the same as before for what is not listed."""

WAITS = {
    #               BACKWARD_ENDS  CALL         OTHERS_CALL
    State.NEW:     (Answer.WAIT, Answer.ASK,  Answer.WAIT),
    State.LEFT:    (Answer.WAIT, Answer.ASK,  Answer.WAIT),
    State.OLDER:   (Answer.WAIT, Answer.OVER, Answer.OVER),
    State.BESIDE:  (Answer.ASK,  Answer.OVER, Answer.OVER),
    State.KEPT:    (Answer.WAIT, Answer.ASK,  Answer.ASK),
}  # fmt: skip
"""Whether the step waits for a result in a state, at each moment. For one that has passed it doesn't. Where a call
begins and one is reached, that backward has failed, and the step is over."""

Question = tuple[State, int, int]
"""For a result in which state it is waited, and its place in what the model returns: how many there are, and which."""


class Result:
    """A tensor that a call has returned. The tensor's hook keeps it alive: as long as a backward can come by it."""

    def __init__(self, tensor: torch.Tensor, call: int, count: int, index: int) -> None:
        self.call = call  # its number in the step, from 1
        self.state = State.NEW
        self.asked: Question | None = None  # the last
        self._place = (count, index)
        self._tensor = weakref.ref(tensor)

    def ask(self) -> Question:
        self.asked = (self.state, *self._place)
        return self.asked

    def see(self, event: Event) -> None:
        self.state = AFTER.get((self.state, event), self.state)

    def is_cut_off(self) -> bool:
        """At the end of a backward: whether it has been through a part of this result's graph, which no other backward
        can come by then."""
        tensor = self._tensor()
        with unseen_by_torch_functions():
            node = None if tensor is None else tensor.grad_fn
        pending = [] if node is None else [node]
        seen = set()
        while pending:
            node = pending.pop()
            if node in seen or node.name() == "torch::autograd::AccumulateGrad":
                continue
            if torch._C._will_engine_execute_node(node):
                return True
            seen.add(node)
            pending.extend(before for before, _ in node.next_functions if before is not None)
        return False


class History(dict[Question, bool]):
    """Of a model: whether a backward came, the last time that one was waited for."""

    def came_to(self, result: Result) -> None:
        """Maybe after the end of the step."""
        if result.asked is not None:
            self[result.asked] = True


class StepEnd:
    """The results of one step. `live`: values that autograd may ask for in the step."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._results: list[weakref.ref[Result]] = []
        self._waited: dict[weakref.ref[Result], Question] = {}
        self._saved: dict[int, int] = {}  # by call: values that it left for autograd
        self._keeps = False  # a backward has kept its graph: that of its gradients may be all that is left
        self._passes = 0  # backward passes that had ended when the last call began
        self._late_calls = 0

    def waiting(self) -> list[Result]:
        """Those whose graphs are still there; without a graph no backward can come."""
        results = [result for reference in self._results if (result := reference()) is not None]
        return [result for result in results if result.state is not State.PASSED]

    def in_backward(self) -> bool:
        """True also where it has failed."""
        return any(result.state is State.REACHED for result in self.waiting())

    def call_ends(self, tensors: list[torch.Tensor], saved: int) -> list[Result]:
        """A call has returned `tensors`, and left `saved` values for autograd."""
        call = len(self._saved) + 1
        self._saved[call] = saved
        results = [Result(tensor, call, len(tensors), index) for index, tensor in enumerate(tensors)]
        self._results += [weakref.ref(result) for result in results]
        return results

    def backward_comes(self, result: Result) -> bool:
        """To a result; whether it is the first one of this backward."""
        first = not self.in_backward()
        result.see(Event.COMES)
        # To wait for NEW ones is not in vain where calls are for one backward, though some results are assigned anew.
        self._waited.pop(weakref.ref(result), None)
        self._waited = {each: asked for each, asked in self._waited.items() if asked[0] is not State.NEW}
        return first

    def backward_ends(self, live: int, kept: bool) -> bool:
        """One that has come to results, and maybe kept the graph. Returns whether the step is over."""
        results = self.waiting()
        calls = {result.call for result in results if result.state is State.REACHED}
        self._keeps |= kept
        for result in results:
            if kept:
                result.see(Event.KEEPS)
            elif result.call in calls:
                result.see(Event.FREES_CALL)
        if kept:
            return False
        self._look_for_gradients_backward(live)
        for result in results:
            if result.call < max(calls, default=0):
                result.see(Event.FREES_LATER)
        return self._waits_for_none(Moment.BACKWARD_ENDS)

    def call_begins(self, moment: Moment, live: int, passes: int, joins: bool) -> bool:
        """Of this model or another one, with or without gradients (`joins`), after so many backward passes in the step.
        Returns whether the step is over."""
        if self.in_backward():  # which has failed
            return True
        if moment is Moment.CALL:
            freed = [reference for reference in self._waited if reference() is None]
            self._history.update((self._waited.pop(reference), False) for reference in freed)
            if passes > self._passes:
                for result in self.waiting():
                    result.see(Event.ENDED)
            self._passes = passes
        self._look_for_gradients_backward(live)
        results = self.waiting()
        if live == 0 or (self._waits_for_none(moment) if results else not self._keeps):
            return True
        if joins and (moment is Moment.OTHERS_CALL or passes > 0 or len({r.call for r in results}) < len(self._saved)):
            self._late_calls += 1  # it may not wait for the same backward as all others
        return self._late_calls > _MOST_LATE_CALLS

    def close(self) -> None:
        """The step has ended."""
        self._history.update((asked, False) for asked in self._waited.values() if asked[0] is State.BESIDE)

    def _waits_for_none(self, moment: Moment) -> bool:
        return not any([self._waits(result, moment) for result in self.waiting()])

    def _waits(self, result: Result, moment: Moment) -> bool:
        answer = WAITS[result.state][moment]
        if answer is not Answer.ASK:
            return answer is Answer.WAIT
        asked = result.ask()
        if asked not in self._history and result.state is State.BESIDE and result.is_cut_off():
            self._history[asked] = False
        waits = self._history.get(asked, True)
        if waits:
            self._waited[weakref.ref(result)] = asked
        return waits

    def _look_for_gradients_backward(self, live: int) -> None:
        """One of gradients (``create_graph``) need not come to the results whose graphs it frees: less is left of these
        than they saved."""
        waiting = self.waiting()
        if any(result.state is not State.KEPT for result in waiting):
            return
        if live < sum(self._saved[call] for call in {result.call for result in waiting}):
            self._keeps = False
            for result in waiting:
                result.see(Event.FREES_KEPT)

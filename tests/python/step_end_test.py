"""When the step of a wrapped model is over: each state that a result may be in, and each event, without a model."""

from __future__ import annotations

import itertools

import pytest
import torch

from remat.step_end import AFTER, WAITS, Answer, Event, History, Moment, Result, State, StepEnd

SAVED = 10  # values that each call leaves for autograd
MANY = 1 << 20  # values that are left: nothing was freed


class Steps:
    """The steps of a model."""

    def __init__(self) -> None:
        self.history = History()
        self.begin()

    def begin(self) -> None:
        self.step = StepEnd(self.history)
        self.passes = 0  # backward passes that have ended

    def call(self, results: int = 1) -> list[Result]:
        return self.step.call_ends([torch.ones(1) for _ in range(results)], SAVED)

    def backward(self, *results: Result, kept: bool = False, live: int = MANY) -> bool:
        """Whether the step is over then. To no results: through another model's."""
        self.passes += 1
        for result in results:
            self.history.came_to(result)
            self.step.backward_comes(result)
        return self.step.backward_ends(live, kept) if results else False

    def begins(self, moment: Moment = Moment.CALL, live: int = MANY, joins: bool = False) -> bool:
        """Whether the step is over as a call begins."""
        return self.step.call_begins(moment, live, self.passes, joins)

    def end(self) -> None:
        self.step.close()
        self.begin()


# What brings a result into a state.
PATHS = {
    State.NEW: [],
    State.LEFT: [Event.ENDED],
    State.OLDER: [Event.FREES_LATER],
    State.BESIDE: [Event.FREES_CALL],
    State.REACHED: [Event.COMES],
    State.KEPT: [Event.COMES, Event.KEEPS],
    State.PASSED: [Event.COMES, Event.FREES_CALL],
}


class Two:
    """Results of a call: one that is looked at, and another one."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.result, self.other = steps.call(2)

    def happens(self, event: Event) -> None:
        steps = self.steps
        if event is Event.COMES:
            steps.step.backward_comes(self.result)
        elif event is Event.KEEPS:
            steps.backward(self.other, kept=True)
        elif event is Event.FREES_CALL:
            steps.backward(self.other)
        elif event is Event.FREES_LATER:
            steps.backward(*steps.call())
        elif event is Event.FREES_KEPT:
            self.other.state = State.PASSED
            steps.begins(Moment.OTHERS_CALL, live=SAVED - 1)
        else:
            steps.backward()
            steps.begins()

    def come_to(self, state: State) -> Two:
        for event in PATHS[state]:
            self.happens(event)
        assert self.result.state is state
        return self


def possible(state: State, event: Event) -> bool:
    """A backward that has come to a result ends as one of its call."""
    return state is not State.PASSED and (state, event) != (State.REACHED, Event.FREES_LATER)


@pytest.mark.parametrize(("state", "event"), [each for each in itertools.product(State, Event) if possible(*each)])
def test_every_event_in_every_state(state, event):
    two = Two(Steps()).come_to(state)
    two.happens(event)
    assert two.result.state is AFTER.get((state, event), state)


def answers(steps: Steps, result: Result, is_over) -> list[bool]:
    """Where the model hasn't shown anything yet; where a backward came to such a result; where none came."""
    question = result.ask()
    found = []
    for came in (None, True, False):
        steps.history.clear()
        if came is not None:
            steps.history[question] = came
        found.append(is_over())
        assert result.state is question[0]
    return found


EXPECTED = {Answer.WAIT: [False] * 3, Answer.ASK: [False, False, True], Answer.OVER: [True] * 3}


@pytest.mark.parametrize("moment", [Moment.CALL, Moment.OTHERS_CALL])
@pytest.mark.parametrize("state", WAITS)
def test_whether_the_step_is_over_as_a_call_begins(state, moment):
    steps = Steps()
    two = Two(steps).come_to(state)
    two.other.state = State.PASSED
    assert answers(steps, two.result, lambda: steps.begins(moment)) == EXPECTED[WAITS[state][moment]]


@pytest.mark.parametrize("state", WAITS)
def test_whether_the_step_is_over_as_a_backward_of_an_older_call_ends(state):
    steps = Steps()
    older = steps.call(3)
    two = Two(steps).come_to(state)
    for result in (two.other, *older):
        result.state = State.PASSED
    passes = iter(older)
    wanted = EXPECTED[WAITS[state][Moment.BACKWARD_ENDS]]
    assert answers(steps, two.result, lambda: steps.backward(next(passes))) == wanted


@pytest.mark.parametrize("state", [State.NEW, State.LEFT, State.KEPT])
@pytest.mark.parametrize("backward", [False, True])
def test_to_wait_for_a_result_that_is_freed_was_in_vain(state, backward):
    """But two calls before a backward are training, not an evaluation whose results are held."""
    steps = Steps()
    two = Two(steps).come_to(state)
    asked = two.result.ask()
    assert not steps.begins()
    two.result = two.other = None
    held = steps.call()
    if backward:
        steps.backward(*held)
    steps.begins()
    assert steps.history.get(asked, True) == (backward and state is State.NEW)


@pytest.mark.parametrize("freed", [False, True])
def test_to_wait_for_the_rest_of_a_call_was_in_vain_if_it_has_not_come_before_the_step_ends(freed):
    steps = Steps()
    first, second = steps.call(2)
    assert not steps.backward(first)
    asked = second.asked
    if freed:
        del second
    steps.end()
    assert steps.history == {asked: False}
    first, second = steps.call(2)
    assert steps.backward(first)
    steps.end()
    steps.history.came_to(second)  # after the end
    first, second = steps.call(2)
    assert not steps.backward(first)


def test_a_result_that_a_backward_comes_to_was_not_waited_for_in_vain():
    steps = Steps()
    (held,) = steps.call()
    steps.begins()
    asked = held.asked
    last = steps.call()
    steps.backward(held)
    del held
    assert not steps.begins()
    assert steps.history == {asked: True}
    del last


@pytest.mark.parametrize("moment", [Moment.CALL, Moment.OTHERS_CALL])
def test_a_step_is_over_where_a_call_begins_after_a_backward_that_has_not_ended(moment):
    steps = Steps()
    kept = Two(steps).come_to(State.REACHED), steps.call()
    assert steps.begins(moment)
    del kept


def test_one_that_was_freed_is_learned_from_once():
    steps = Steps()
    kept, held = steps.call(), steps.call()
    steps.backward()
    steps.begins()
    asked = held[0].asked
    del held
    steps.begins()
    assert steps.history == {asked: False}
    steps.backward(*kept, kept=True)
    steps.begins()
    assert steps.history == {asked: True}


def test_results_in_other_places_are_judged_by_themselves():
    steps = Steps()
    first, second = steps.call(2)
    steps.backward(second)
    steps.end()
    first, second = steps.call(2)
    assert not steps.backward(first)


def test_a_step_is_over_where_nothing_is_left_for_autograd():
    steps = Steps()
    assert steps.begins(live=0)
    held = steps.call()
    assert steps.begins(live=0) and not steps.begins()
    del held
    assert steps.begins()


def test_a_graph_of_gradients_may_be_all_that_is_left():
    steps = Steps()
    steps.backward(*steps.call(), kept=True)
    assert not steps.step.waiting() and not steps.begins()


@pytest.mark.parametrize(("kept", "live", "over"), [(True, SAVED, False), (True, SAVED - 1, True), (False, 1, False)])
def test_a_backward_of_gradients_is_seen_by_what_is_left_of_the_graphs(kept, live, over):
    steps = Steps()
    (result,) = steps.call()
    if kept:
        steps.backward(result, kept=True)
    assert steps.begins(live=live) == over


@pytest.mark.parametrize("moment", [Moment.CALL, Moment.OTHERS_CALL])
def test_calls_that_may_wait_for_ever_have_an_end(moment):
    """Those that may all wait for one backward have none, nor those without gradients."""
    steps = Steps()
    held = [*steps.call()]
    for _ in range(40):
        assert not steps.begins(joins=True)
        held += steps.call()
    assert not steps.backward(held[0])
    for _ in range(32):
        assert not steps.begins(moment, joins=True)
        assert not steps.begins(moment)
    assert steps.begins(moment, joins=True)


class Loop:
    """A training loop as a row of words, run again and again by one model. `x=` is a call whose result is held by that
    name until it is assigned anew, `x,y=` one with two results, `x.` a backward, `x~` one that keeps the graph, `del x`
    lets go, `other` is a call of another wrapped model, `pass` a backward through that one's result."""

    def __init__(self) -> None:
        self.steps, self.held, self.open, self.in_steps = Steps(), {}, False, {}

    def run(self, words: str) -> str:
        """For each call: N if it begins a step, j if it joins one. For each backward: e if the step ends, w if it waits
        for more, - if there was none. For each call of another model: o if it is in the step."""
        return "".join(self.one(word) for word in words.replace("del ", "del_").split())

    def live(self) -> int:
        return SAVED * len({result.call for result in self.steps.step.waiting()})

    def one(self, word: str) -> str:
        steps = self.steps
        if word.endswith("="):
            names = word[:-1].split(",")
            joins = self.open and not steps.begins(live=self.live(), joins=True)
            if not joins:
                steps.end()
            self.open = True
            self.held.update(zip(names, steps.call(len(names)), strict=True))
            self.in_steps.update(dict.fromkeys(names, steps.step))
            return "j" if joins else "N"
        if word.startswith("del_"):
            del self.held[word[4:]]
        elif word == "other":
            if self.open and not steps.begins(Moment.OTHERS_CALL, self.live(), joins=True):
                return "o"
            self.finish()
            return "-"
        elif word == "pass":
            steps.backward()
        else:
            result = self.held[word[:-1]]
            if not self.open or self.in_steps[word[:-1]] is not steps.step:
                steps.history.came_to(result)
                return "-"
            if not steps.backward(result, kept=word.endswith("~")):
                return "w"
            self.finish()
            return "e"
        return ""

    def finish(self) -> None:
        self.open = False
        self.steps.end()


LOOPS = {
    "x= x.": "Ne Ne Ne Ne",
    "x= x~ x~ x.": "Nwwe Nwwe",
    "x= y= x. y.": "Njwe Njwe Njwe",
    "x= y= y. x.": "Njwe Njwe Njwe",
    "x= x= x.": "Nje Nje Nje",  # the first is there until the second is
    "x= x~": "Nw jw Nw Nw",  # loss.backward(retain_graph=True), always
    "x= x~ y= x. y.": "Nwjwe Nwjwe Nwjwe",
    "x= y= x~ y. x.": "Njwwe Njwwe",
    "value= target= value.": "Njw jjw Njw Njw Njw",  # Q-learning by someone who forgot no_grad
    "x= x. y= y= y= y=": "NeNjNN NeNNNN NeNNNN",  # an evaluation by someone who forgot it
    "x= y= y.": "Njw Njw Njw",  # x is held, and older
    "x,y= x. y.": "Nwe Nwe Nwe",  # two losses
    "x,y= x.": "Nw Ne Ne Ne",  # y is held for a log
    "x,y= x~ x. y.": "Nwwe Nwwe",
    "x,y= z= x. z.": "Njww Njwe Njwe",
    "last= x= last. x.": "Njwe Njwe",
    "x= other pass x= x.": "Noje Noje Noje",
    "x= other pass": "No jo No No No",  # a teacher's, held until it is assigned anew
    "x= x~ other": "Nwo jwo Nw- Nw-",
    "x= y= y. other x.": "Njw-- Njw-- Njw--",
    "x= x~ y= y.": "Nwjw Nwjw Nwjw",
    "a= x= x~ a. x.": "Njwwe Njwwe Njwwe",
    "x,y= x. other y.": "Nw-- Nw-- Nw--",
    "x,y= z= z. x.": "Njww Njwe Njwe",
    "x,y= other pass z= x. z.": "Nojww Nojwe Nojwe",
    "x= other pass z= z. y= y.": "NojwNe NojwNe NojwNe",
    "x= other pass z= x. z.": "Nojwe Nojwe Nojwe",
    "a= x= other pass z= del z a. x.": "Njojwe Njojwe Njojwe",
    "x= other pass z= del z other x.": "Nojoe Nojoe Nojoe",
}


@pytest.mark.parametrize(("words", "wanted"), LOOPS.items())
def test_loops(words, wanted):
    loop = Loop()
    assert " ".join(loop.run(words) for _ in wanted.split()) == wanted

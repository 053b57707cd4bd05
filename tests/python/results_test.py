"""What a wrapped model returns may be any object: its step still begins and ends with it, and has plain's bits."""

from __future__ import annotations

import collections
import dataclasses
import types

import pytest
import torch
from compare import assert_same, blocks
from scopes import loss_of
from torch import nn

import remat
from remat.results import tensors_in


class KeyErrors:
    """Looks into a dict for what is not there."""

    __slots__ = ("fields",)

    def __init__(self, logits):
        self.fields = {"logits": logits}

    def __getattr__(self, name):
        return self.fields[name]


class Unset(KeyErrors):
    __slots__ = ("later",)


class Private:
    __slots__ = ("__logits",)

    def __init__(self, logits):
        self.__logits = logits

    def __getattr__(self, name):
        raise RuntimeError("not yours")

    @property
    def logits(self):
        return self.__logits


class Properties:
    def __init__(self, logits):
        self.logits = logits

    @property
    def hidden_states(self):
        raise ValueError("not kept")


class NoDict(Properties):
    __dict__ = property(lambda self: 1 / 0)
    __slots__ = ("logits",)


class Jealous(Properties):
    """Each access is looked at, and none but to its fields is allowed."""

    def __getattribute__(self, name):
        if name != "logits":
            raise PermissionError(name)
        return object.__getattribute__(self, name)


class Answers(Properties):
    """Has an answer for every name."""

    def __getattr__(self, name):
        return torch.zeros(3) if name == "__dict__" else self


class Compares(Properties):
    def __eq__(self, other):
        raise TypeError("no")

    def __hash__(self):
        raise TypeError("no")

    def __bool__(self):
        raise TypeError("no")

    def __len__(self):
        raise ValueError("no")


class Iterates(list):
    def __init__(self, logits):
        super().__init__([logits])
        self.logits = logits

    def __iter__(self):
        raise RuntimeError("no")

    def __len__(self):
        raise RuntimeError("no")


class Lengthless(list):
    logits = property(lambda self: self[0])

    def __init__(self, logits):
        super().__init__([logits])

    def __len__(self):
        raise RuntimeError("no")


class Values(collections.UserDict):
    def __init__(self, logits):
        super().__init__(logits=logits)

    logits = property(lambda self: self.data["logits"])

    def values(self):
        raise RuntimeError("no")


class MadeAnew(collections.abc.Mapping):
    """Gives other objects each time."""

    def __init__(self, logits):
        self.logits = logits

    def __getitem__(self, key):
        return {key: None} if key < 20 else {key: self.logits}

    def __iter__(self):
        return iter(range(21))

    def __len__(self):
        return 21


@dataclasses.dataclass(slots=True)
class Data:
    logits: torch.Tensor
    other: object = dataclasses.field(default=None)


KINDS = [KeyErrors, Private, Properties, NoDict, Jealous, Answers, Compares, Iterates, Lengthless, Values, MadeAnew, Data]
KINDS += [Unset, lambda logits: types.SimpleNamespace(logits=logits, jealous=Jealous(None), failing=[Iterates(logits)])]


class Returns(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.body, self.kind = blocks(3), kind

    def forward(self, x):
        return self.kind(self.body(x))


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_any_kind(kind):
    def train(wrap):
        torch.manual_seed(0)
        model = wrap(Returns(kind))
        for _ in range(3):
            loss = loss_of(model(torch.randn(256, 64)).logits)
            loss.backward()
        return model, [loss.detach(), *(p.grad for p in model.parameters())]

    model, ours = train(lambda m: remat.wrap(m, budget="70%"))
    assert_same(train(lambda m: m)[1], ours)
    report = remat.session_of(model).report()
    assert report.step == 3 and report.completed and report.values_dropped > 0


def test_nothing_of_an_object_is_asked():
    class Asked:
        def __getattr__(self, name):
            asked.append(name)
            raise AttributeError(name)

    asked = []
    part = Asked()
    part.x = torch.ones(1, requires_grad=True)
    assert tensors_in([part]) == [part.x] and not asked


def test_no_method_of_a_collection_is_called():
    """It may draw random numbers."""

    class Values(dict):
        def values(self):
            raise AssertionError("called")

    class Iterates(list):
        def __iter__(self):
            raise AssertionError("called")

    class Table(collections.UserDict):
        def values(self):
            raise AssertionError("called")

        def __iter__(self):
            raise AssertionError("called")

    logits = torch.ones(1, requires_grad=True)
    for part in (Values(a=logits), Iterates([logits]), Table()):
        if isinstance(part, Table):
            part["a"] = logits
        assert tensors_in(part) == [logits]
    assert tensors_in(types.MappingProxyType({"a": logits})) == [logits]


class Hookless(torch.Tensor):
    def register_hook(self, hook):
        raise RuntimeError("no hooks here")


def test_no_method_of_a_subclass_is_called():
    model = remat.wrap(torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU()), budget="100%")
    model(torch.randn(64, 32).as_subclass(Hookless)).square().mean().backward()
    assert remat.session_of(model).report().completed

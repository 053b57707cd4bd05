"""BudgetError.needed_bytes: a loop that sets its budget to the number of each error comes to an end."""

from __future__ import annotations

import inspect
import re
import textwrap
import threading
import time
from collections.abc import Callable

import pytest
import torch
from compare import blocks
from torch import nn

import remat

Loss = Callable[[], torch.Tensor]


def mlp() -> tuple[nn.Module, Loss]:
    model = blocks()
    x = torch.randn(256, 64)
    return model, lambda: model(x).square().mean()


def convolutions() -> tuple[nn.Module, Loss]:
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    for _ in range(4):
        layers += [nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Conv2d(16, 16, 3, padding=1)]
    model = nn.Sequential(*layers)
    x = torch.randn(4, 3, 16, 16)
    return model, lambda: model(x).square().mean()


def pooled() -> tuple[nn.Module, Loss]:
    """What backward of the batch normalization reads and makes is there at once: no step takes less than plain's."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(16, 32, 3))
    x = torch.randn(8, 3, 20, 20)
    return model, lambda: model(x).square().mean()


def transformer() -> tuple[nn.Module, Loss]:
    layer = nn.TransformerEncoderLayer(32, 4, 128, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    x = torch.randn(4, 32, 32)
    return model, lambda: model(x).square().mean()


def recurrent() -> tuple[nn.Module, Loss]:
    model = nn.ModuleList([nn.GRUCell(24, 24), nn.Linear(24, 24)])
    x = torch.randn(12, 8, 24)

    def loss() -> torch.Tensor:
        h = torch.zeros(8, 24)
        for part in x:
            h = torch.tanh(model[1](model[0](part, h)))
        return h.square().mean()

    return model, loss


MODELS = {
    "mlp": mlp,
    "convolutions": convolutions,
    "transformer": transformer,
    "recurrent": recurrent,
}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.01),
    "adamw": torch.optim.AdamW,
}


def train(
    loss: Loss, optimizer: torch.optim.Optimizer, set_to_none: bool, micro_batches: int, alone: bool = True
) -> tuple[int, int]:
    """Three updates, from 1000 bytes on with the number of each error. Returns how many errors there were, and the budget
    in the end."""
    budget, rounds, waits, update = 1000, 0, 0, 0
    session = remat.Session(budget=budget, device="cpu")
    while update < 3:
        try:
            for _ in range(micro_batches):
                with session.step():
                    loss().backward()
        except remat.BudgetError as error:
            if not alone and error.budget_bytes < budget:  # of several threads' budgets the smallest holds for all
                optimizer.zero_grad(set_to_none=set_to_none)
                waits += 1
                assert waits < 1000
                time.sleep(0.001)
                session = remat.Session(budget=budget, device="cpu")
                continue
            assert error.budget_bytes == budget
            assert error.budget_bytes < error.needed_bytes
            assert str(error.needed_bytes) in str(error)
            rounds += 1
            assert rounds < 30
            budget = error.needed_bytes
            session = remat.Session(budget=budget, device="cpu")
        else:
            optimizer.step()
            update += 1
        optimizer.zero_grad(set_to_none=set_to_none)
    return rounds, budget


WAYS = [
    (optimizer, set_to_none, micro_batches)
    for optimizer in OPTIMIZERS
    for set_to_none in (True, False)
    for micro_batches in (1, 2)
]


@pytest.mark.parametrize(
    ("model", "optimizer", "set_to_none", "micro_batches"),
    [("mlp", *way) for way in WAYS] + [(model, *way) for model in MODELS if model != "mlp" for way in WAYS[1::3]],
)
def test_a_loop_of_refusals_comes_to_an_end(model, optimizer, set_to_none, micro_batches):
    torch.manual_seed(1)
    module, loss = MODELS[model]()
    _, budget = train(loss, OPTIMIZERS[optimizer](module.parameters()), set_to_none, micro_batches)
    session = remat.Session(device="cpu")
    with session.step():
        loss().backward()
    report = session.report()
    gradients = sum(p.nbytes for p in module.parameters())
    assert budget < report.baseline_bytes + gradients + report.plain_activation_peak_bytes * 1.15


def test_threads_that_train_at_a_time_come_to_an_end():
    done = []
    made = [
        MODELS[name]() for name in ("mlp", "transformer")
    ]  # outside of the steps: their limits hold for all threads

    def work(module: torch.nn.Module, loss: Loss) -> None:
        done.append(train(loss, torch.optim.SGD(module.parameters()), True, 1, alone=False))

    threads = [threading.Thread(target=work, args=each) for each in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 2


@pytest.mark.parametrize("model", MODELS)
def test_where_the_step_is_known_the_number_is_enough(model):
    torch.manual_seed(1)
    module, loss = MODELS[model]()
    optimizer = torch.optim.AdamW(module.parameters())
    session = remat.Session(device="cpu")
    with session.step():
        loss().backward()
    optimizer.zero_grad()
    least = session.min_budget_bytes()
    least += (least - session.report().baseline_bytes) // 8
    tight = remat.Session(budget=least, device="cpu")
    with tight.step():
        loss().backward()
    optimizer.step()  # whose state comes to stay
    optimizer.zero_grad()
    needed = 0
    try:
        with tight.step():
            loss().backward()
    except remat.BudgetError as error:  # whose frames hold tensors of the step: it must be gone
        needed = error.needed_bytes
    assert needed > least
    optimizer.zero_grad()
    again = remat.Session(budget=needed, device="cpu")
    for _ in range(3):
        with again.step():
            loss().backward()
        assert again.report().peak_bytes <= needed
        optimizer.zero_grad()


@pytest.mark.parametrize("make", [*MODELS.values(), pooled])
def test_the_smallest_budget_is_no_less_than_what_any_step_takes(make):
    torch.manual_seed(1)
    module, loss = make()
    session = remat.Session(device="cpu")
    for _ in range(2):
        module.zero_grad()
        with session.step():
            loss().backward()
    module.zero_grad()
    least = session.min_budget_bytes()
    plain = session.report().plain_peak_bytes
    assert least <= plain
    tight = remat.Session(budget=least, device="cpu")
    try:
        with tight.step():
            loss().backward()
    except remat.BudgetError as error:  # what is dropped depends on the times measured: a few percent more, at most
        assert error.lower_bound_bytes <= least
        assert error.needed_bytes <= least + (least - session.report().baseline_bytes) // 3
    known = remat.Session(budget="20%", device="cpu")
    for _ in range(2):
        module.zero_grad()
        try:
            with known.step():
                loss().backward()
        except remat.BudgetError as error:
            assert error.needed_bytes <= plain


def test_planners_name_their_smallest():
    module, loss = mlp()
    session = remat.Session(device="cpu")
    with session.step():
        loss().backward()
    with pytest.raises(remat.BudgetError) as caught:
        remat.make_plan(session.graph(), 101)
    error = caught.value
    assert error.needed_bytes == error.smallest_known_bytes
    plan = remat.make_plan(session.graph(), error.needed_bytes)
    assert plan.predicted_peak_bytes <= error.needed_bytes


def test_the_smallest_budget_counts_gradients_that_have_gone_since():
    torch.manual_seed(1)
    module = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])
    x = torch.randn(64, 256)
    optimizer = torch.optim.AdamW(module.parameters())
    session = remat.Session(device="cpu")
    with session.step():
        module(x).square().mean().backward()
    optimizer.step()
    there = session.min_budget_bytes()
    optimizer.zero_grad()
    assert session.min_budget_bytes() == there  # the next step makes them again
    with remat.Session(budget=there + 50_000, device="cpu").step():
        module(x).square().mean().backward()


class Predictions(torch.utils.data.Dataset):
    def __init__(self, model):
        self.model = model

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.model(torch.randn(4096, 64)).detach()


def test_the_numbers_are_there_where_a_worker_of_a_data_loader_was_refused():
    data = Predictions(remat.wrap(blocks(), budget=300_000))
    errors = []
    for workers in (0, 1):
        with pytest.raises(remat.BudgetError) as caught:
            next(iter(torch.utils.data.DataLoader(data, num_workers=workers)))
        errors.append((caught.value.budget_bytes, caught.value.needed_bytes, caught.value.lower_bound_bytes))
    assert errors[0] == errors[1]
    assert errors[0][0] == 300_000


def test_the_loop_of_the_manual_comes_to_an_end():
    code = textwrap.dedent(inspect.cleandoc(remat.BudgetError.__doc__).split("::\n", 1)[1])
    model, loss = mlp()

    def train_one_step(budget: int) -> None:
        with remat.Session(budget).step():
            loss().backward()

    names = {"remat": remat, "train_one_step": train_one_step}
    exec(code, names)
    assert names["budget"] > 1 << 20 and all(p.grad is not None for p in model.parameters())


def test_a_percentage_that_is_too_small_is_refused_with_one_that_works():
    def steps(budget):
        module, loss = mlp()
        session = remat.Session(budget, device="cpu")
        for _ in range(4):
            with session.step():
                loss().backward()
            module.zero_grad()

    with pytest.raises(remat.BudgetError) as caught:
        steps("1%")
    percent = caught.value.needed_percent
    assert percent == int(percent) and f" or {percent:.0f}%, " in str(caught.value)
    steps(f"{percent:.0f}%")
    assert remat.BudgetError(str(caught.value) + " ").needed_percent == percent, "told by its text alone"


def test_online_sessions_too_tell_what_a_step_took():
    """They write no graph down; the second step is like the first."""
    module, loss = mlp()
    session = remat.Session("1%", device="cpu", planner="online")

    def step(within):
        with within.step():
            loss().backward()
        module.zero_grad()

    step(session)
    with pytest.raises(remat.BudgetError, match="predicted to take") as caught:
        step(session)
    module.zero_grad()
    assert caught.value.needed_bytes >= session.min_budget_bytes()
    enough = remat.Session(caught.value.needed_bytes, device="cpu", planner="online")
    for _ in range(4):
        step(enough)


def test_gradients_that_were_freed_are_in_the_number_of_a_step_that_cannot_begin():
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)))  # 2 MiB, and hardly any activations
    x = torch.randn(4, 256)
    remat.memory.start_accounting("cpu")
    session = remat.Session(budget=remat.memory.current("cpu") + (8 << 20))
    for _ in range(2):  # the second begins with gradients
        with session.step():
            model(x).sum().backward()
    model.zero_grad()
    ballast = torch.empty(16 << 20, dtype=torch.uint8)
    with pytest.raises(remat.BudgetError) as caught, session.step():
        pass
    message = str(caught.value)
    least = re.search(r"like the one recorded last takes ([\d.]+) MiB at least", message)
    assert least and float(least[1]) <= caught.value.needed_bytes / 2**20 + 0.1, message
    with remat.Session(budget=caught.value.needed_bytes).step():
        model(x).sum().backward()
    del ballast


def test_what_backward_allocates_makes_no_step_larger():
    """Momentum buffers that the first step makes are not in the graph of the second, which is refused in backward."""
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.Softplus(), nn.Conv2d(16, 16, 3, stride=2, padding=1), nn.Softplus()]
    model = nn.Sequential(*layers, nn.Conv2d(16, 32, 3, padding=1), nn.Softplus(), nn.Flatten(), nn.Linear(8192, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def train(session: remat.Session) -> None:
        for _ in range(3):
            x = torch.randn(8, 3, 32, 32, requires_grad=True)
            optimizer.zero_grad()
            with session.step():
                score = model(x)
                (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
                (score.mean() + (slope.flatten(1).norm(dim=1) - 1).square().mean()).backward()
                optimizer.step()

    with pytest.raises(remat.BudgetError) as caught:
        train(remat.Session(budget="50%"))
    assert "is larger" not in str(caught.value)
    assert caught.value.needed_percent is not None
    train(remat.Session(budget=f"{caught.value.needed_percent}%"))

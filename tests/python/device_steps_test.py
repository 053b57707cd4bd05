"""Steps on an accelerator, the simulated one: budgets hold and bits are plain's where kernels run later, on streams, from
addresses alone, and backward runs on a thread of autograd's."""

import contextlib
import gc
import json

import pytest
import simulated_device
import torch
from torch import nn

import remat

pytestmark = pytest.mark.skipif(simulated_device.LIBRARY is None, reason="REMAT_SIMULATED_DEVICE names no library")


@pytest.fixture(autouse=True)
def math_attention():
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        yield


@pytest.fixture
def device():
    device = simulated_device.load()
    yield device
    torch.ops.remat_simulated.set_draw_on_cpu(False)
    gc.collect()


class Residual(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm, self.relu = nn.BatchNorm2d(channels), nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(x + self.norm(self.convolution(x)))


class Attention(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1))
        self.out = nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.out(self.mlp(x))


def perceptron(dropout=0.0):
    block = lambda: nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Dropout(dropout), nn.Linear(128, 32))  # noqa: E731
    return nn.Sequential(*(block() for _ in range(6))), torch.randn(512, 32)


def residual():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(Residual() for _ in range(4))), torch.randn(16, 3, 16, 16)


def attention():
    return nn.Sequential(*(Attention() for _ in range(4))), torch.randn(32, 16, 32)


MODELS = {
    "perceptron": perceptron,
    "dropout": lambda: perceptron(0.2),
    "batch norm": residual,
    "attention": attention,
}


class Training:
    """The same steps each time, from the same seed."""

    def __init__(self, make, device):
        torch.manual_seed(0)
        model, x = make()
        self.model, self.x = model.to(device), x.to(device)
        self.reports = []

    def loss(self):
        return self.model(self.x).square().mean()

    def run(self, step, steps=4):
        optimizer = torch.optim.SGD(self.model.parameters(), 1e-2)
        results = []
        for _ in range(steps):
            optimizer.zero_grad()
            torch.manual_seed(7)
            with step():
                loss = self.loss()
                loss.backward()
            results.append(loss.detach().cpu())
            results += [parameter.grad.cpu() for parameter in self.model.parameters()]
            optimizer.step()
        results += [buffer.cpu() for buffer in self.model.buffers()]
        return [*results, torch.simulated.get_rng_state(), torch.get_rng_state()]


def same(values, others):
    return [torch.equal(value, other) for value, other in zip(values, others, strict=True)].count(False) == 0


def within(budget, make, device, **options):
    """The results of steps within `budget`, and their reports."""
    training, reports = Training(make, device), []
    session = remat.Session(budget=budget, device=device, **options)

    @contextlib.contextmanager
    def step():
        with session.step():
            yield
        reports.append(session.report())

    return training.run(step), reports


@pytest.mark.parametrize("budget", ["60%", "45%"])
@pytest.mark.parametrize("model", MODELS)
def test_bits_are_plains_and_peaks_under_the_budget(device, model, budget):
    plain = Training(MODELS[model], device).run(contextlib.nullcontext)
    ours, reports = within(budget, MODELS[model], device, verify=budget == "45%")
    assert same(plain, ours)
    assert all(report.peak_bytes <= report.budget_bytes for report in reports)
    assert reports[-1].ops_replayed > 0 and reports[-1].decided_by == "auto"
    assert reports[-1].peak_bytes <= reports[-1].planned_peak_bytes
    assert all(report.reserved_peak_bytes > 0 for report in reports)


def test_the_first_step_asks_for_no_more_than_was_counted_before(device):
    training = Training(MODELS["perceptron"], device)
    torch.accelerator.reset_peak_memory_stats()
    training.run(contextlib.nullcontext, steps=1)
    session = remat.Session(device=device)
    with session.step():
        training.loss().backward()
    report = session.report()
    assert report.baseline_bytes > 0
    assert abs(report.peak_bytes - torch.accelerator.max_memory_allocated()) < 512 * 100  # rounding


class MasksAndIndices(nn.Module):
    """Its values with two different elements, and its small numbers in 64 bits, are what the CPU packs."""

    def forward(self, x):
        for _ in range(3):
            x = torch.where(x > 0, x, x.exp() - 1) * 1.5
        indices = x.abs().mul(7).long().remainder(x.shape[1])
        return x.gather(1, indices).sin() * (x > 0.5)


@pytest.mark.parametrize("packs", [False, True])
def test_nothing_is_packed_on_a_device(device, packs):
    where = "cpu" if packs else device
    make = lambda: (nn.Sequential(nn.Linear(32, 128), MasksAndIndices(), nn.Dropout(0.1)), torch.randn(256, 32))  # noqa: E731
    training = Training(make, where)
    session = remat.Session(budget="85%", device=where)
    training.run(session.step, steps=3)
    graph, plan = json.loads(session.graph().to_json()), json.loads(session.plan().to_json())
    assert any(value["packed_bytes"] for value in graph["values"]) == packs
    assert bool(plan["actions"]["pack"]) == packs
    assert (session.report().values_packed > 0) == packs
    assert session.report().decided_by == "auto"


@pytest.mark.parametrize("draws_on_cpu", [False, True])
def test_random_operators_that_draw_elsewhere_are_kept(device, draws_on_cpu):
    """As where a device without a kernel has the CPU's compute it: pytorch#127676 is torch's own checkpoint on MPS."""
    torch.ops.remat_simulated.set_draw_on_cpu(draws_on_cpu)
    plain = Training(MODELS["dropout"], device).run(contextlib.nullcontext)
    ours, reports = within("70%", MODELS["dropout"], device)
    assert same(plain, ours)
    assert reports[-1].ops_replayed > 0


def test_a_step_that_does_not_fit_is_refused_and_leaves_nothing(device):
    training = Training(MODELS["perceptron"], device)
    before = None
    for _ in range(3):
        training.model.zero_grad()
        gc.collect()
        torch.accelerator.synchronize()
        alive = remat.memory.current(device)
        assert before in (None, alive)
        before = alive
        session = remat.Session(budget=alive + 20_000, device=device)
        with pytest.raises(remat.BudgetError, match="out of memory") as refused, session.step():
            training.loss().backward()
        assert refused.value.needed_bytes > alive + 20_000


def test_backward_of_a_gradient_is_recorded_on_autograds_thread(device):
    def penalized(to):
        torch.manual_seed(0)
        model, x = perceptron()
        model, x = model.to(to), x.to(to).requires_grad_()
        session = remat.Session(device=to)
        with session.step():
            loss = model(x).square().mean()
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
            (loss + gradient.square().sum()).backward()
        return session.report().ops_recorded, [parameter.grad.cpu() for parameter in model.parameters()]

    recorded, gradients = penalized(device)
    assert recorded == penalized("cpu")[0]
    with remat.Session(budget="60%", device=device).step():
        pass
    assert same(gradients, penalized(device)[1])


def test_two_devices_are_counted_apart(device):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = perceptron()[0].to("simulated:0"), perceptron()[0].to("simulated:1")

        def forward(self, x):
            return self.second(self.first(x).to("simulated:1"))

    make = lambda: (Two(), torch.randn(64, 32))  # noqa: E731
    training = Training(lambda: (Two(), torch.randn(64, 32)), "cpu")

    def run(step):
        torch.manual_seed(0)
        model, x = make()
        training.model, training.x = model, x.to("simulated:0")
        return training.run(step)

    plain = run(contextlib.nullcontext)
    for index in range(2):
        session = remat.Session(budget="60%", device=f"simulated:{index}")
        assert same(plain, run(session.step))
        report = session.report()
        assert report.peak_bytes <= report.budget_bytes and report.ops_replayed > 0


def test_a_wrapped_model_has_the_budget_on_its_device(device):
    training = Training(MODELS["attention"], device)
    plain = Training(MODELS["attention"], device).run(contextlib.nullcontext)
    remat.wrap(training.model, budget="50%")
    assert same(plain, training.run(contextlib.nullcontext))
    report = remat.session_of(training.model).report()
    assert report.peak_bytes <= report.budget_bytes < report.plain_peak_bytes


def test_autocast(device):
    def run(step):
        training = Training(MODELS["attention"], device)
        forward = training.loss

        def loss():
            with torch.autocast("simulated", torch.bfloat16):
                return forward()

        training.loss = loss
        return training.run(step)

    session = remat.Session(budget="50%", device=device)
    assert same(run(contextlib.nullcontext), run(session.step))
    assert session.report().ops_replayed > 0


def test_all_of_plain_leaves_room_for_checksums(device):
    """They are memory of the device that plain does not take."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x):
            return (self.linear(x) * 1).clone()

    model = remat.wrap(Model().to(device), budget="100%")
    for _ in range(4):  # gradients accumulate
        model(torch.randn(64, 64, device=device)).square().mean().backward()

"""Instructions of random programs that change what is around a step: PyTorch's settings, kernels, modes of backward.

Kinds of random_programs.py: "settings" are changed between operators and before backward, while another thread looks at
them; "kernels" of PyTorch's operators are registered and removed; "modes" are in force around backward.
"""

from __future__ import annotations

import contextlib
import threading
import warnings

import torch
from random_programs import SIZE, Machine, instruction
from torch import nn

import remat

warnings.filterwarnings("ignore", message=".*previously registered kernel.*")
WIDE = 3 * SIZE  # rows from which on oneDNN multiplies

# ---- settings ----

PRECISIONS = ["none", "ieee", "bf16", "tf32"]
MKLDNN = torch.backends.mkldnn
SETTINGS = {
    "precision": (lambda v: setattr(torch.backends, "fp32_precision", v), PRECISIONS),
    "precision of oneDNN": (lambda v: setattr(MKLDNN, "fp32_precision", v), PRECISIONS),
    "precision of products": (lambda v: setattr(MKLDNN.matmul, "fp32_precision", v), PRECISIONS),
    "precision of convolutions": (lambda v: setattr(MKLDNN.conv, "fp32_precision", v), PRECISIONS),
    "default type": (torch.set_default_dtype, [torch.float32, torch.float64]),
    "threads": (torch.set_num_threads, [1, 2, 3]),
    "oneDNN": (torch._C._set_mkldnn_enabled, [True, False]),
    "deterministic oneDNN": (torch._C._set_mkldnn_deterministic, [False, True]),
    "NNPACK": (torch._C._set_nnpack_enabled, [True, False]),
    "deterministic": (torch.use_deterministic_algorithms, [False, True]),
    "filled memory": (lambda v: setattr(torch.utils.deterministic, "fill_uninitialized_memory", v), [True, False]),
    "denormal": (torch.set_flush_denormal, [False, True]),
}


def reset_settings() -> None:
    for change, values in SETTINGS.values():
        change(values[0])


def settings_in_force() -> list[object]:
    """With what precisions are inherited, which shows when the setting above is another."""
    seen: list[object] = [
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch._C._get_mkldnn_enabled(),
        torch._C._get_mkldnn_deterministic(),
        torch._C._get_nnpack_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    ]
    for owner in (torch.backends, MKLDNN):
        for value in PRECISIONS[1:]:
            owner.fp32_precision = value
            seen += [MKLDNN.fp32_precision, MKLDNN.matmul.fp32_precision, MKLDNN.conv.fp32_precision]
    started: list[int] = []
    thread = threading.Thread(target=lambda: started.append(torch.get_num_threads()))  # as threads that begin later
    thread.start()
    thread.join()
    return seen + started


def let_another_thread_run() -> None:
    """What would need other settings in a replay is kept from the first step on in which other threads were seen."""
    with remat.Session().step():
        thread = threading.Thread(target=lambda: torch.ones(1) + 1)
        torch.ones(1).add(1)
        thread.start()
        thread.join()


let_another_thread_run()


class Watcher:
    """Another thread, which looks at settings all the time: in backward they are what they were before it, unless they
    are others than those that the step began with (docs/exactness.md)."""

    def __init__(self, m: Machine) -> None:
        self.machine = m
        self.other: set[object] = set()
        self.expected: object = None  # set while they are watched
        self.ended = False
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    @staticmethod
    def settings() -> object:
        return torch.tensor([1.0]).dtype, torch._C._get_mkldnn_enabled(), MKLDNN.matmul.fp32_precision

    def look(self) -> None:
        while not self.ended:
            expected = self.expected
            try:
                seen = self.settings()
            except remat.BudgetError:  # the step's budget is every thread's
                continue
            if expected is not None and seen != expected and self.expected is expected:
                self.other.add(seen)

    @contextlib.contextmanager
    def watching(self):
        self.expected = None if self.machine.changed_late else self.settings()
        yield
        self.expected = None

    def end(self) -> list[str]:
        self.ended = True
        self.thread.join()
        return sorted(map(str, self.other))


@instruction("settings")
def changed_setting(m: Machine) -> None:
    name = m.choices.choice(list(SETTINGS))
    change, values = SETTINGS[name]
    value, later = m.choices.choice(values), m.choices.choice(values)
    fate = m.choices.randrange(4)
    m.listing.append(f"  {name} {value}, then {fate} {later}")
    m.closing.append(reset_settings)
    if settings_in_force not in m.observations:
        m.observations.append(settings_in_force)
    change(value)
    m.changed_late = m.changed_late or fate != 0
    if fate == 0:  # for one operator
        wide_product(m)
        change(values[0])
    elif fate == 1:
        m.refills.append(lambda: change(later))
    elif fate == 2:
        m.refills.append(lambda: change(values[0]))


@instruction("settings")
def watched(m: Machine) -> None:
    """Where other threads are, what a replay must set is kept, so that they see what they see in plain."""
    watcher = Watcher(m)
    m.closing.append(watcher.end)
    m.modes.append(watcher.watching)
    m.observations.append(watcher.end)


@instruction("settings")
def wide_product(m: Machine) -> None:
    x = m.pick().repeat(3, 3)
    weight = m.weights[0].repeat(3, 3)
    m.pool.append((x @ weight).tanh()[:SIZE, :SIZE] * m.pick())


@instruction("settings")
def convolution(m: Machine) -> None:
    x = m.pick().repeat(1, 4, 2, 2)
    weight = m.weights[1].flatten()[:144].reshape(4, 4, 3, 3)
    m.pool.append(torch.conv2d(x, weight, padding=1)[0, 0, :SIZE, :SIZE].sin() * m.pick())


@instruction("settings")
def of_default_type(m: Machine) -> None:
    kind = m.choices.randrange(6)
    numbers = torch.arange(SIZE * SIZE).reshape(SIZE, SIZE)
    if kind == 0:
        y = torch.rand(SIZE, SIZE)
    elif kind == 1:
        y = torch.full((SIZE, SIZE), 0.3).exp()
    elif kind == 2:
        y = (numbers / 7).sin()
    elif kind == 3:
        y = torch.linspace(0, 1, SIZE).exp()
    elif kind == 4:
        y = torch.zeros(SIZE, SIZE).add_(0.1).exp_()
    else:
        y = (numbers * 0.1 > 0.7).float()
    x = m.pick()
    m.pool.append((x * y.to(x.dtype).exp()).tanh())


@instruction("settings")
def denormal(m: Machine) -> None:
    m.pool.append(((m.pick() * 1e-39).mul(0.7) * 1e38).sin())


@instruction("settings")
def scattered_rows(m: Machine) -> None:
    rows = torch.randint(0, SIZE, (SIZE,))
    m.pool.append(torch.zeros_like(m.pick()).index_put((rows,), m.pick(), accumulate=True).exp().tanh())


# ---- kernels ----


def python_kernel(name: str, m: Machine):
    """Gives other bits with every call."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        m.calls += 1
        factor = 1 + 0.01 * m.calls
        if name == "silu":
            return x * torch.reciprocal(1 + torch.exp(-x)) * factor
        if name == "tanh":
            e = torch.exp(-2 * x.abs())
            return x.sgn() * (1 - e) / (1 + e) / factor
        return torch.reciprocal(1 + torch.exp(-x)) / factor

    return kernel


@instruction("kernels")
def registered(m: Machine) -> None:
    name = m.choices.choice(["silu", "tanh", "sigmoid"])
    fate = m.choices.randrange(4)
    m.listing.append(f"  {name} {fate}")
    library = torch.library.Library("aten", "IMPL")  # noqa: TOR901
    m.closing.append(library._destroy)

    function, key = python_kernel(name, m), m.choices.choice(["CPU", "CPU", "ADInplaceOrView", "BackendSelect"])

    def register() -> None:
        if key == "CPU":
            library.impl(name, function, key, allow_override=True)
        else:
            library.impl(name, lambda keys, x: function(x), key, with_keyset=True, allow_override=True)

    if fate == 0:  # between forward and backward
        m.refills.append(register)
        return
    register()
    m.pool.append(getattr(torch, name)(m.pick()) * m.pick() if name != "silu" else nn.functional.silu(m.pick()).sin())
    if fate == 1:
        library._destroy()
    elif fate == 2:
        m.refills.append(library._destroy)


@instruction("kernels")
def activation(m: Machine) -> None:
    x = m.choices.choice([torch.sigmoid, torch.tanh, nn.functional.silu])(m.pick())
    m.pool.append(x * x.cos())


@instruction("kernels")
def composed(m: Machine) -> None:
    """Kernels that call others."""
    x = m.pick()
    m.pool.append(m.choices.choice([nn.functional.mish, nn.functional.logsigmoid, nn.functional.glu])(x.repeat(1, 2))
                  [:, :SIZE] * x)  # fmt: skip


@instruction("kernels")
def defined_anew(m: Machine) -> None:
    """An operator whose name another one had before."""
    library = torch.library.Library("remat_random", "DEF")  # noqa: TOR901
    m.closing.append(library._destroy)
    factor = m.choices.choice([0.5, 1.5])
    library.define("scaled(Tensor x) -> Tensor")
    library.impl("scaled", lambda x: x * factor, "CPU")
    with torch.no_grad():
        scale = torch.ops.remat_random.scaled(m.pick().detach())
    m.pool.append((m.pick() * scale).sin() * scale)
    if m.choices.random() < 0.5:
        library._destroy()
    else:
        m.refills.append(library._destroy)


# ---- modes ----


@instruction("modes")
def mode_of_backward(m: Machine) -> None:
    modes = [
        torch.inference_mode,
        torch.no_grad,
        lambda: torch.inference_mode(False),
        lambda: torch.autograd.set_multithreading_enabled(False),
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.device("cpu"),
        torch.autograd.graph.save_on_cpu,
        contextlib.nullcontext,
    ]
    mode = m.choices.randrange(len(modes))
    m.listing.append(f"  mode {mode}")
    m.modes.append(modes[mode])


@instruction("modes")
def in_inference_mode(m: Machine) -> None:
    with torch.inference_mode():
        y = m.pick() * 0.5
        if m.choices.random() < 0.5:
            y = y.exp()
    m.pool.append((m.pick() * y.clone()).sin())


@instruction("modes")
def without_gradient(m: Machine) -> None:
    with torch.no_grad():
        y = (m.pick() * 0.5).exp()
    m.pool.append((m.pick() * y).tanh() * y)

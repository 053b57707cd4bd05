"""What a session has done within a budget it can do again: from its first step that completes on, none is refused, whether
its steps are recorded, planned or neither. Budgets near the smallest, where every byte that the records hold counts."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable

import pytest
import torch
from compare import assert_same, outcome
from torch import nn

import remat

STEPS = 12
Loss = Callable[[], tuple[torch.Tensor, torch.Tensor]]  # with the logits: results in a user's hands while backward runs


class Block(nn.Module):
    """Of a transformer, its attention written out: dropout draws three times."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)
        self.causal = causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, 4, width // 4).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / 4
        if self.causal:
            scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf"))
        mixed = self.dropout(scores.softmax(-1)) @ v
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm2(x)))))


def classifier() -> tuple[nn.Module, Loss]:
    """Like BERT: gradients are the peak, that of the words last."""
    words, head = nn.Embedding(20000, 64), nn.Linear(64, 2)
    blocks = nn.Sequential(nn.Dropout(0.1), *(Block(64, causal=False) for _ in range(2)))
    x, y = torch.randint(0, 20000, (2, 16)), torch.zeros(2, dtype=torch.long)

    def loss() -> tuple[torch.Tensor, torch.Tensor]:
        logits = head(blocks(words(x))[:, 0])
        return nn.functional.cross_entropy(logits, y), logits

    return nn.ModuleList([words, blocks, head]), loss


def language() -> tuple[nn.Module, Loss]:
    words, head = nn.Embedding(200, 48), nn.Linear(48, 200)
    blocks = nn.Sequential(*(Block(48, causal=True) for _ in range(4)))
    x = torch.randint(0, 200, (4, 32))

    def loss() -> tuple[torch.Tensor, torch.Tensor]:
        logits = head(blocks(words(x)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), x.flatten()), logits

    return nn.ModuleList([words, blocks, head]), loss


def convolutions() -> tuple[nn.Module, Loss]:
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    for _ in range(3):
        layers += [nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Conv2d(16, 16, 3, padding=1)]
    model = nn.Sequential(*layers)
    x = torch.randn(4, 3, 16, 16)

    def loss() -> tuple[torch.Tensor, torch.Tensor]:
        y = model(x)
        return y.square().mean(), y

    return model, loss


def recurrent() -> tuple[nn.Module, Loss]:
    cell, head = nn.LSTMCell(32, 32), nn.Linear(32, 32)
    x = torch.randn(10, 8, 32)

    def loss() -> tuple[torch.Tensor, torch.Tensor]:
        h = c = torch.zeros(8, 32)
        for part in x:
            h, c = cell(nn.functional.dropout(part, 0.1), (h, c))
        y = head(h)
        return y.square().mean(), y

    return nn.ModuleList([cell, head]), loss


# By model: the first budget above what is alive before the step, as a share of plain's; how far apart the next are; how
# many there are. The first is refused, the last works.
BUDGETS = {
    classifier: (0.998, 0.003, 4),
    language: (0.285, 0.005, 8),
    convolutions: (0.340, 0.020, 5),
    recurrent: (0.790, 0.030, 5),
}


def step(model: nn.Module, loss: Loss, session: remat.Session | None = None) -> tuple[list[torch.Tensor | None], int]:
    """Its outcome and its peak in bytes. Each is the same step."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(5)
    remat.memory.reset_peak("cpu")
    with session.step() if session else contextlib.nullcontext():
        result, held = loss()
        result.backward()
    peak = remat.memory.peak("cpu")
    return [t.detach().clone() for t in outcome(model, (result, held)) if t is not None], peak


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("make", "planner"),
    [(make, "auto") for make in BUDGETS] + [(classifier, "online")],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_no_step_is_refused_after_one_that_completed(make, planner):
    model, loss = make()
    buffers = {name: t.clone() for name, t in model.named_buffers()}

    def run(session: remat.Session | None = None) -> tuple[list[torch.Tensor | None], int]:
        with torch.no_grad():
            for name, t in model.named_buffers():
                t.copy_(buffers[name])
        return step(model, loss, session)

    run(remat.Session(planner="online"))  # counts what is older
    plain, _ = run()
    model.zero_grad(set_to_none=True)
    gc.collect()
    baseline = remat.memory.current("cpu")
    peak = run()[1]
    first, apart, count = BUDGETS[make]
    seen = {}
    for number in range(count):
        budget = baseline + int((peak - baseline) * (first + apart * number))
        session = remat.Session(budget=budget, planner=planner)
        seen[budget] = ""
        for _ in range(STEPS):
            try:
                result, taken = run(session)
            except remat.BudgetError:
                seen[budget] += "R"
                continue
            seen[budget] += "."
            assert taken <= budget
            assert_same(plain, result)
            del result
        del session
    assert not [each for each in seen.values() if "R" in each[each.find(".") :] and "." in each], seen
    assert "R" in next(iter(seen.values())), "the first budget is not below the smallest: none of these is near it"
    assert any(each == STEPS * "." for each in seen.values()), seen


def test_steps_of_two_rounds_of_which_some_begin_without_gradients():
    """As those of Lightning's manual optimization: each round frees the gradients of the one before, and now and then the
    user has done so. A step that begins without them takes as much, and all of it above what was alive before."""

    def run(session=None):
        torch.manual_seed(3)
        blocks = [nn.Sequential(nn.Linear(128, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.1)) for _ in range(6)]
        model = nn.Sequential(nn.Linear(32, 128), *blocks, nn.Linear(128, 10))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        losses, planned = [], []
        for number in range(9):
            x, y = torch.randn(64, 32), torch.randint(0, 10, (64,))
            if number % 3 == 0:
                optimizer.zero_grad()
            with contextlib.nullcontext() if session is None else session.step():
                for _ in range(2):
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
            if session is not None:
                report = session.report()
                assert report.peak_bytes <= report.budget_bytes
                planned.append((report.planned_peak_bytes, report.peak_bytes))
        return [*losses, *(each.double().sum().item() for each in model.parameters())], planned

    expected, _ = run()
    least = 1000
    while True:
        try:
            run(remat.Session(budget=least, planner="online"))
            break
        except remat.BudgetError as error:
            least = error.needed_bytes
    for more in range(8):
        found, planned = run(remat.Session(budget=least + more * 45_000))
        assert found == expected
    assert all(plan == 0 or plan >= peak for plan, peak in planned), planned

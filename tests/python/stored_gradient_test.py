"""Gradients that wait in a file: the same bits as in memory, whatever a loop does with them."""

from __future__ import annotations

import copy
import io
import warnings

import numpy
import pytest
import torch
from paged_training import assert_same, batch, make_model
from torch import nn

import remat


def clip(model, optimizer, scaler):
    return nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def clip_foreach(model, optimizer, scaler):
    return nn.utils.clip_grad_norm_(model.parameters(), 0.01, foreach=True)


def clip_another_norm(model, optimizer, scaler):
    return nn.utils.clip_grad_norm_(model.parameters(), 0.01, norm_type=float("inf"))


def clip_values(model, optimizer, scaler):
    nn.utils.clip_grad_value_(model.parameters(), 1e-4)


def unscale(model, optimizer, scaler):
    scaler.unscale_(optimizer)
    return nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def change_by_hand(model, optimizer, scaler):
    for parameter in model.parameters():
        parameter.grad.div_(3).add_(parameter.detach(), alpha=0.1)
        parameter.grad *= torch.tensor(0.5)
        parameter.grad[0] = 0  # a view
        parameter.grad.mul_(2)


def view_and_clip(model, optimizer, scaler):
    for parameter in model.parameters():
        parameter.grad[0].zero_()
    first = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    return first, nn.utils.clip_grad_norm_(model.parameters(), 0.001)


def look_and_clip(model, optimizer, scaler):
    sums = [parameter.grad.flatten().sum() for parameter in model.parameters()]
    return sums, nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def replace_data(model, optimizer, scaler):
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    gradients = [parameter.grad for parameter in model.parameters()]
    for gradient in gradients:
        gradient.data = gradient.data - gradient.data.mean()
    vector = nn.utils.parameters_to_vector(gradients)
    nn.utils.vector_to_parameters(2 * vector, gradients)
    return norm, nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def under_inference_mode(model, optimizer, scaler):
    with torch.inference_mode():
        return [parameter.grad.abs().max().item() for parameter in model.parameters()]


def nothing(model, optimizer, scaler):
    pass


def train(between, dir=None, steps=4, accumulate=3, make=torch.optim.AdamW, set_to_none=True):
    model = make_model()
    optimizer = make(model.parameters(), lr=1e-3)
    if dir is not None:
        remat.paged(optimizer, dir=dir, gradients=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=between is unscale)
    results = []
    for step in range(steps):
        for micro in range(accumulate):
            x = batch(step * accumulate + micro)
            loss = (model(x) - x).square().mean() / accumulate
            scaler.scale(loss).backward()
            if dir is not None:
                large = [p.grad for p in model.parameters() if p.grad.nbytes >= 64 << 10]
                assert len(large) == 3 and all(isinstance(g, remat.StoredGradient) for g in large)
        results.append(between(model, optimizer, scaler))
        results.append([p.grad.clone() for p in model.parameters()])
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=set_to_none)
    return results, dict(model.named_parameters()), optimizer.state_dict()


@pytest.mark.parametrize(
    "between",
    [
        nothing,
        clip,
        clip_foreach,
        clip_another_norm,
        clip_values,
        unscale,
        change_by_hand,
        view_and_clip,
        look_and_clip,
        replace_data,
        under_inference_mode,
    ],
)
@pytest.mark.parametrize("set_to_none", [True, False])
def test_bits_are_those_of_gradients_in_memory(between, set_to_none, tmp_path):
    assert_same(train(between, tmp_path, set_to_none=set_to_none), train(between, set_to_none=set_to_none))


def test_a_look_between_passes_changes_no_norm(tmp_path):
    def run(dir):
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if dir is not None:
            remat.paged(optimizer, dir=dir, gradients=True)
        norms = []
        for step in range(3):
            for micro in range(2):
                model(batch(2 * step + micro)).square().mean().backward()
                if micro == 0:
                    norms.append([parameter.grad.flatten().norm() for parameter in model.parameters()])
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.01))
            optimizer.step()
            optimizer.zero_grad()
        return norms, dict(model.named_parameters())

    assert_same(run(tmp_path), run(None))


class OldStyle(torch.optim.Optimizer):
    """Adds its weight decay to the gradients, past their version counters."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.data.add_(parameter.data, alpha=0.1)
                    parameter.data.add_(parameter.grad.data, alpha=-group["lr"])


def test_what_an_optimizer_does_to_gradients_is_kept(tmp_path):
    def run(dir):
        model = make_model()
        optimizer = OldStyle(model.parameters())
        if dir is not None:
            remat.paged(optimizer, dir=dir, gradients=True, per_parameter=True)
        for step in range(3):  # gradients add up
            model(batch(step)).square().mean().backward()
            optimizer.step()
        return dict(model.named_parameters()), [parameter.grad.clone() for parameter in model.parameters()]

    assert_same(run(tmp_path), run(None))


def stored(tmp_path):
    weight = nn.Parameter(torch.randn(200, 200))
    weight.owner = torch.optim.SGD([weight], lr=0.1)
    remat.paged(weight.owner, dir=tmp_path, gradients=True)
    (weight**2).sum().backward()
    return weight


def test_what_is_changed_while_it_is_loaded_is_written(tmp_path):
    weight = stored(tmp_path)
    with weight.grad.loaded() as gradient:
        gradient.data.mul_(2)
    with weight.grad.loaded() as gradient:
        gradient.numpy()[0] = 1
    expected = 4 * weight.detach()
    expected[0] = 1
    assert torch.equal(weight.grad.plain(), expected)


def test_what_needs_an_address_is_refused(tmp_path):
    gradient = stored(tmp_path).grad
    for use in (lambda g: g.share_memory_(), lambda g: g.numpy(), lambda g: g.tolist(), torch.from_dlpack, numpy.asarray):
        with pytest.raises(remat.Error, match=r"in a file, and has no address; take plain\(\)"):
            use(gradient)
    with pytest.raises(remat.Error, match=r"t_ changes its shape; take plain\(\)"):
        gradient.t_()
    with pytest.raises(remat.Error, match=r"of shape \(3,\)"):
        gradient.data = torch.ones(3)
    assert torch.equal(gradient.plain(), gradient.clone())


def test_a_factor_that_cannot_be_is_refused_at_once(tmp_path):
    weight = stored(tmp_path)
    with pytest.raises(RuntimeError, match="can't be cast"):
        weight.grad.mul_(torch.tensor(1j))
    weight.owner.step()
    assert torch.equal(weight.grad.plain(), weight.grad.clone())


def test_foreach_operators_may_have_a_tensor_of_scalars(tmp_path):
    first, second = stored(tmp_path), stored(tmp_path)
    gradients = [first.grad, second.grad]
    expected = [gradient.plain() for gradient in gradients]
    scalars = torch.tensor([2.0, 3.0])
    ones = [torch.ones(200, 200), torch.ones(200, 200)]
    for each in (gradients, expected):
        torch._foreach_addcmul_(each, ones, ones, scalars)
    assert_same([gradient.plain() for gradient in gradients], expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9, weight_decay=0.1),
        lambda p, lr: torch.optim.AdamW(p, lr=lr, maximize=True, foreach=True),
        lambda p, lr: torch.optim.Adafactor(p, lr=lr),
    ],
)
def test_bits_of_other_optimizers(make, tmp_path):
    assert_same(train(clip, tmp_path, make=make), train(clip, make=make))


def test_memory_holds_three_gradients_at_most(tmp_path):
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(12)))
    one = 256 * 256 * 4
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pages = remat.paged(optimizer, dir=tmp_path, gradients=True)
    x = torch.randn(2, 256)
    remat.memory.start_accounting()
    before = remat.memory.current()
    remat.memory.reset_peak()
    for _ in range(2):
        for _ in range(2):
            model(x).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    assert remat.memory.peak() - before < 4 * one + 200_000
    assert remat.memory.current() - before < 100_000
    assert pages.stores_gradients


def test_a_wrapped_model_keeps_its_budget(tmp_path):
    def run(dir):
        torch.manual_seed(1)
        model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(8)))
        optimizer = torch.optim.AdamW(model.parameters())
        if dir is not None:
            remat.wrap(model, budget="60%")
            remat.paged(optimizer, dir=dir, gradients=True)
        losses = []
        for step in range(8):
            x = torch.randn(512, 256, generator=torch.Generator().manual_seed(step))
            loss = model(x).square().mean()
            loss.backward()
            losses.append(loss.detach())
            if step % 2 == 0:
                continue
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
        if dir is not None:
            report = remat.session_of(model).report()
            assert report.completed and report.peak_bytes <= report.budget_bytes
            assert report.ops_replayed > 0
        return losses, [p.detach().clone() for p in model.parameters()]

    assert_same(run(tmp_path), run(None))


def test_a_norm_and_a_factor_read_nothing(tmp_path):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pages = remat.paged(optimizer, dir=tmp_path, gradients=True)
    reads = []
    for step in range(3):
        model(batch(step)).square().mean().backward()
        before = pages.gradient_report().read_bytes
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        reads.append(pages.gradient_report().read_bytes - before)
        optimizer.step()
        optimizer.zero_grad()
    assert reads[0] > 0 and reads[1:] == [0, 0]
    assert "of gradients in a file" in str(pages.gradient_report())


def test_a_view_brings_it_back_to_memory(tmp_path):
    weight = nn.Parameter(torch.randn(200, 200))
    remat.paged(torch.optim.SGD([weight], lr=0.1), dir=tmp_path, gradients=True)
    (weight**2).sum().backward()
    row = weight.grad[3]
    row.zero_()
    assert torch.equal(weight.grad[3], torch.zeros(200))
    expected = 2 * weight.detach()
    expected[3] = 0
    assert torch.equal(weight.grad, expected)
    alias = weight.grad.detach()
    alias.mul_(2)
    assert torch.equal(weight.grad + 0, 2 * expected)


def test_copies_are_plain_tensors(tmp_path):
    weight = nn.Parameter(torch.randn(200, 200))
    remat.paged(torch.optim.SGD([weight], lr=0.1), dir=tmp_path, gradients=True)
    (weight**2).sum().backward()
    gradient = weight.grad
    assert isinstance(gradient, remat.StoredGradient)
    file = io.BytesIO()
    torch.save(gradient, file)
    file.seek(0)
    for other in (gradient.plain(), gradient.clone(), copy.deepcopy(gradient), torch.load(file)):
        assert type(other) is torch.Tensor
        assert torch.equal(other, 2 * weight.detach())
    assert repr(gradient) == repr(2 * weight.detach())


def test_what_a_graph_was_made_for_stays_in_memory(tmp_path):
    weight = nn.Parameter(torch.randn(200, 200))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    pages = remat.paged(optimizer, dir=tmp_path, gradients=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of create_graph
        (weight**3).sum().backward(create_graph=True)
    assert type(weight.grad) is torch.Tensor
    weight.grad = None
    (weight**2).sum().backward()
    pages.remove()
    assert type(weight.grad) is torch.Tensor and torch.equal(weight.grad, 2 * weight.detach())
    (weight**2).sum().backward()
    assert type(weight.grad) is torch.Tensor


def test_a_full_disk_leaves_gradients_in_memory(tmp_path):
    expected = train(clip)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    remat.paged(optimizer, dir=tmp_path, gradients=True, limit_bytes=140_000)
    with pytest.warns(UserWarning, match="the gradient stays in memory"):
        for step in range(4):
            for micro in range(3):
                x = batch(step * 3 + micro)
                ((model(x) - x).square().mean() / 3).backward()
            clip(model, optimizer, None)
            optimizer.step()
            optimizer.zero_grad()
    assert_same(dict(model.named_parameters()), expected[1])


def test_updates_in_backward_and_stored_gradients_exclude_each_other(tmp_path):
    optimizer = torch.optim.SGD(make_model().parameters(), lr=0.1)
    updates = remat.optimizer_in_backward(optimizer)
    with pytest.raises(remat.Error, match="gradients=True: backward updates the parameters of this SGD"):
        remat.paged(optimizer, dir=tmp_path, gradients=True)
    updates.remove()
    remat.paged(optimizer, dir=tmp_path, gradients=True)
    with pytest.raises(remat.Error, match="gradients of this SGD wait in a file"):
        remat.optimizer_in_backward(optimizer)

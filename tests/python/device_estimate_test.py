"""What is predicted of a GPU, as far as that can be checked without CUDA; tests/cuda/device_estimate_test.py compares it
with PyTorch's own allocator."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json

import pytest
import torch
from compare import blocks
from named_optimizers import NAMED_OPTIMIZERS
from torch import nn

import remat
from remat import _C, memory
from remat.__main__ import main
from remat.device_estimate import device_with, model_blocks, optimizer_blocks, record_step
from remat.device_operators import operators_of_cuda
from remat.estimate import estimate

MIB = 1 << 20
NO_LIMIT = 1 << 62


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (4, 8)).transpose(1, 2) for each in self.project(x).chunk(3, -1))
        return nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)


def convolutions():
    residual = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Conv2d(16, 16, 3)]
    return nn.Sequential(*residual)


MODELS = {
    "blocks": (lambda: blocks(norm=True), lambda model: model(torch.zeros(256, 64)).square().mean()),
    "convolutions": (convolutions, lambda model: model(torch.zeros(4, 3, 32, 32)).square().mean()),
    "attention": (Attention, lambda model: model(torch.zeros(4, 64, 32)).square().mean()),
    "in place": (
        lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(inplace=True), nn.Linear(64, 64), nn.LeakyReLU(inplace=True)),
        lambda model: model(torch.zeros(128, 64)).square().mean(),
    ),
    "checkpointed": (
        lambda: blocks(norm=True),
        lambda model: remat.checkpoint(model, torch.zeros(256, 64)).square().mean(),
    ),
}


@pytest.fixture
def recorded(request):
    memory.start_accounting("meta")
    with torch.device("meta"):
        step = record_step(*MODELS[request.param], "adam")
    for operator in step.graph["operators"]:
        operator["seconds"] = operator["replay_seconds"] = 1e-4
    step.graph["step_seconds"] = 3e-4 * len(step.graph["operators"])
    return step


def predict(step, bytes=NO_LIMIT, plan=None, settings=""):
    device_step = _C.DeviceStep(json.dumps(step.graph), step.allocations)
    return device_step.predict(step.model, step.state, step.update, bytes, settings, plan)


@pytest.mark.parametrize("recorded", MODELS, indirect=True)
def test_allocations_add_up_to_what_the_simulator_of_plans_says(recorded):
    """Block by block, and as rises and falls: two accounts of the same step, under any plan."""
    graph = json.dumps(recorded.graph)
    plain = _C.plain_peak_bytes(graph)
    baseline = recorded.graph["baseline_bytes"]
    for share in (100, 80, 60, 40, 20, 0):
        plans = _C.plan_curve(graph, [baseline + (plain - baseline) * share // 100])
        for plan in plans:
            assert predict(recorded, plan=plan).step_bytes == plan.predicted_peak_bytes


@pytest.mark.parametrize("recorded", ["blocks"], indirect=True)
def test_a_device_that_is_too_small_is_said_to_be(recorded):
    peaks = predict(recorded)
    assert peaks.fits
    assert peaks.allocated_bytes < peaks.reserved_bytes == max(peaks.reserved_in_steps)
    assert peaks.reserved_bytes % (2 * MIB) == 0
    enough = predict(recorded, peaks.reserved_bytes)
    assert (enough.fits, enough.releases) == (True, 0)
    small = predict(recorded, 2 * MIB)
    assert not small.fits
    assert small.reserved_bytes >= small.allocated_bytes > 2 * MIB


@pytest.mark.parametrize("recorded", ["blocks"], indirect=True)
def test_allocations_of_another_step_are_refused(recorded):
    leaf = {"bytes": 1, "producer": -1, "packed_bytes": 0, "droppable": False, "dropped": False}
    other = dict(recorded.graph, values=recorded.graph["values"] + [leaf])
    with pytest.raises(remat.Error, match=r"\[estimate\] the allocations are of .* give the allocations of the step"):
        predict(dataclasses.replace(recorded, graph=other))


def test_allocations_are_noted_once_and_for_steps_of_this_thread():
    notes = _C.AllocationNotes()
    with pytest.raises(remat.Error, match="no step has written down its allocations"):
        notes.take()
    session = remat.Session(device="cpu", planner="keep-all")
    with session.step():
        nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()
    notes.take()
    with pytest.raises(remat.Error, match="no step has written down"):
        notes.take()


def saved_bytes(make_loss):
    sizes = []

    def note(tensor):
        sizes.append(tensor.nbytes)
        return tensor.detach()  # a result that held itself would never be freed

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        make_loss()
    return sorted(sizes)


def test_dropout_and_attention_are_cudas():
    def loss(dtype):
        q = torch.zeros(2, 4, 64, 8, dtype=dtype, device="meta", requires_grad=True)
        return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    def dropped():
        return nn.functional.dropout(torch.zeros(1000, device="meta", requires_grad=True), 0.1)

    assert saved_bytes(dropped) == [4000]  # the mask in floats
    scores = 2 * 4 * 64 * 64 * 4
    assert max(saved_bytes(lambda: loss(torch.float32))) == scores
    with operators_of_cuda():
        assert saved_bytes(dropped) == [1000]
        assert max(saved_bytes(lambda: loss(torch.float32))) < scores
        assert max(saved_bytes(lambda: loss(torch.bfloat16))) < scores / 2
        assert nn.functional.dropout(torch.zeros(3, device="meta"), 0.5, training=False).shape == (3,)
    assert saved_bytes(dropped) == [4000]


def test_attentions_kernels_are_those_that_are_switched_on():
    x = torch.zeros(2, 4, 64, 8, device="meta", requires_grad=True)
    before = torch.backends.cuda.mem_efficient_sdp_enabled()
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    try:
        with operators_of_cuda():
            assert max(saved_bytes(lambda: nn.functional.scaled_dot_product_attention(x, x, x))) == 2 * 4 * 64 * 64 * 4
    finally:
        torch.backends.cuda.enable_mem_efficient_sdp(before)


@pytest.mark.parametrize("width", [8, 20])
@pytest.mark.parametrize("mask", [None, torch.bool, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_attention_of_every_kind_runs(dtype, mask, width):
    with torch.device("meta"), operators_of_cuda():
        q = torch.zeros(2, 4, 30, width, dtype=dtype, requires_grad=True)
        given = None if mask is None else torch.zeros(30, 30, dtype=dtype if mask.is_floating_point else mask)
        result = nn.functional.scaled_dot_product_attention(q, q, q, given, 0.1)
        assert result.shape == q.shape
        result.sum().backward()
        assert q.grad.shape == q.shape


def test_blocks_of_a_model_are_those_that_are_moved():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4, bias=False))
    model.append(nn.Linear(4, 8, bias=False))
    model[3].weight = model[0].weight  # shared
    assert sum(model_blocks(model)) == sum(t.nbytes for t in [*model.parameters(), *model.buffers()])
    assert model_blocks(model)[:2] == [4 * 8 * 4, 8 * 4]


@pytest.mark.parametrize("name", NAMED_OPTIMIZERS)
def test_blocks_of_an_optimizer_are_those_of_a_real_one(name):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(40, 30))
    optimizer = NAMED_OPTIMIZERS[name](model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    kept = [v for p in model.parameters() for k, v in optimizer.state[p].items() if k != "step" and v is not None]
    assert optimizer_blocks(name, model.parameters())[0] == [tensor.nbytes for tensor in kept]


def shapes(memory_size, **options):
    make_model, loss_of = MODELS["blocks"]
    return estimate(make_model, loss_of, "adam", device_memory=memory_size, **options).device


def test_an_estimate_of_a_device_names_the_largest_budget_that_fits():
    large = shapes("1GiB")
    assert large.plain.fits and large.largest is None
    assert large.context_bytes == 500 * MIB
    assert "fits without remat" in str(large)
    room = large.plain.reserved_bytes - 2 * MIB
    found = shapes(room, device_context=0)
    assert not found.plain.fits
    assert found.plain.reserved_bytes == large.plain.reserved_bytes
    assert found.largest.fits
    assert found.largest.reserved_bytes <= room
    assert found.largest.budget_bytes <= room
    assert all(point.budget_bytes <= found.largest.budget_bytes for point in found.curve if point.fits)
    assert [point.budget_bytes for point in found.curve] == sorted((p.budget_bytes for p in found.curve), reverse=True)
    assert f'"{found.largest.share_percent:.0f}%" of the activations' in str(found)
    none = shapes(2 * MIB, device_context=0)
    assert none.largest is None
    assert "No budget fits" in str(none)


def test_an_allocators_settings_count(monkeypatch):
    usual = shapes("1GiB").plain.reserved_bytes
    assert shapes("1GiB", allocator_settings="large_segment_size_mb:64").plain.reserved_bytes >= usual
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    found = shapes("1GiB")
    assert found.allocator_settings == "expandable_segments:True"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    assert shapes("1GiB").allocator_settings == ""


@pytest.mark.parametrize(
    "options, message",
    [
        ({"memory": "40%"}, "the device's memory is '40%'; give bytes"),
        ({"memory": "1GiB", "context": "1GiB"}, "leaves nothing of a device"),
        ({"memory": "1GiB", "context": "some"}, "some"),
        ({"memory": "1GiB", "allocator_settings": "garbage_collection_threshold:0.6"}, "garbage_collection_threshold"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(remat.Error, match=message):
        device_with(**options)


def test_requests_that_free_what_is_not_there_are_refused():
    with pytest.raises(remat.Error, match=r"\[allocator\] request 1 frees the block of request 1, which has none"):
        _C.simulate_allocator([(100, -1), (0, 1)], NO_LIMIT, "")


def command(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["estimate", *arguments])
    return code, out.getvalue(), err.getvalue()


def test_the_command(tmp_path):
    transformers = pytest.importorskip("transformers")
    small = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
    transformers.BertConfig(**small, vocab_size=500).save_pretrained(tmp_path)
    words = [str(tmp_path), "--batch", "4", "--seq", "64"]
    code, out, _ = command(*words, "--device-memory", "1GiB", "--json")
    assert code == 0
    device = json.loads(out)["device"]
    assert device["memory_bytes"] == 1 << 30
    assert device["plain"]["fits"]
    text = command(*words, "--device-memory", "30MiB", "--device-context", "2MiB")[1]
    assert "On a GPU of 30.0 MiB, 2.00 MiB of it the context's (an assumption), predicted:" in text
    assert "The largest budget that fits" in text or "fits without remat" in text
    assert command(*words)[1].count("On a GPU") == 0
    code, _, err = command(*words, "--device-memory", "lots")
    assert code == 1
    assert "lots" in err

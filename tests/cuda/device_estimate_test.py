"""What is predicted of a GPU on the meta device, against PyTorch's own allocator."""

import dataclasses
import gc
import json

import pytest
import torch
import torch.nn.functional as F
from training import BATCH, WIDTH, Gpt, Lstm, ResNet, blocks, in_step

import remat
from remat import _C, memory
from remat.device_estimate import record_step
from remat.estimate import estimate

MIB = 1 << 20
STEPS = 3
LARGE = 1 << 40  # no limit


def mlp():
    return blocks, lambda model: model(torch.zeros(BATCH, WIDTH)).square().mean()


def gpt():
    def loss(model):
        tokens = torch.zeros(16, 64, dtype=torch.long)
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    return Gpt, loss


def resnet():
    def loss(model):
        return F.cross_entropy(model(torch.zeros(32, 3, 24, 24)), torch.zeros(32, dtype=torch.long))

    return ResNet, loss


def lstm():
    return Lstm, lambda model: model(torch.zeros(32, 64, 32)).square().mean()


def forget():
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def train(device, make_model, loss_of, session=None):
    """The most allocated, and the most reserved in each step."""
    forget()
    model = make_model().to(device)
    optimizer = torch.optim.Adam(model.parameters())
    allocated, reserved = 0, []
    for _ in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        with torch.device(device), in_step(session):
            loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        allocated = max(allocated, torch.cuda.max_memory_allocated())
        reserved.append(torch.cuda.max_memory_reserved())
    return allocated, reserved


def timed(graph):
    for operator in graph["operators"]:
        operator["seconds"] = operator["replay_seconds"] = 1e-4
    graph["step_seconds"] = 3e-4 * len(graph["operators"])
    return json.dumps(graph)


def recorded_on_meta(make_model, loss_of):
    memory.start_accounting("meta")
    with torch.device("meta"):
        return record_step(make_model, loss_of, "adam")


def recorded_on(device, make_model, loss_of):
    """As it runs there, with the operators that PyTorch chooses there."""
    around = recorded_on_meta(make_model, loss_of)
    forget()
    model = make_model().to(device)
    session = remat.Session(device=device, planner="keep-all")
    notes = _C.AllocationNotes()
    with torch.device(device), session.step():
        loss_of(model).backward()
    graph, allocations = session.graph(), notes.take()
    graph["baseline_bytes"] += sum(around.state)
    return dataclasses.replace(around, graph=graph, allocations=allocations)


def predicted(recorded, plan=None):
    step = _C.DeviceStep(timed(recorded.graph), recorded.allocations)
    return step.predict(recorded.model, recorded.state, recorded.update, LARGE, "", plan)


@pytest.mark.parametrize("make", [mlp, gpt, resnet])
def test_plain_training_takes_what_is_predicted_without_a_device(device, make):
    peaks = predicted(recorded_on_meta(*make()))
    assert (peaks.allocated_bytes, peaks.reserved_in_steps) == train(device, *make())


def test_an_lstm_takes_more_than_is_predicted(device):
    """The meta device runs it in other operators."""
    peaks = predicted(recorded_on_meta(*lstm()))
    allocated, _ = train(device, *lstm())
    assert 0.5 * allocated < peaks.allocated_bytes < allocated


# What a session's checksums of replays take, at most. Blocks lie otherwise beside them: a small segment more or less.
CHECKSUMS, SMALL_SEGMENT = 16 << 10, 2 << 20


@pytest.mark.parametrize("share", [70, 50, 30])
@pytest.mark.parametrize("make", [mlp, gpt, resnet, lstm])
def test_planned_training_takes_what_is_predicted(device, make, share):
    """With a budget that leaves room for holes, since plans are followed to the end then."""
    recorded = recorded_on(device, *make())
    graph = timed(recorded.graph)
    baseline, plain_peak = recorded.graph["baseline_bytes"], _C.plain_peak_bytes(graph)
    planned = _C.make_plan(graph, baseline + (plain_peak - baseline) * share // 100, "auto", False, False)
    plan = _C.Plan.from_json(json.dumps(json.loads(planned.to_json()) | {"budget_bytes": LARGE}))
    session = remat.Session(LARGE, device=device, plan=remat.Plan(plan))
    train(device, *make(), session)  # its first step has no plan
    peaks = predicted(recorded, plan)
    allocated, reserved = train(device, *make(), session)
    assert 0 <= allocated - peaks.allocated_bytes <= CHECKSUMS
    more = [measured - foretold for measured, foretold in zip(reserved, peaks.reserved_in_steps, strict=True)]
    assert max(map(abs, more)) <= SMALL_SEGMENT, more
    for bytes_ in (peaks.step_bytes, session.report().peak_bytes):  # the plan is of a step with more checksums
        assert 0 <= planned.predicted_peak_bytes - bytes_ <= CHECKSUMS


@pytest.mark.parametrize("make, memory_mib", [(mlp, 70), (gpt, 22), (resnet, 60)])
def test_the_largest_budget_that_fits_trains_within_the_memory(device, make, memory_mib):
    make_model, loss_of = make()
    estimated = estimate(make_model, loss_of, "adam", device_memory=memory_mib * MIB, device_context=0).device
    total = torch.cuda.get_device_properties(device).total_memory
    forget()
    torch.cuda.set_per_process_memory_fraction(memory_mib * MIB / total)
    if estimated.plain.fits:
        train(device, make_model, loss_of)
        return
    with pytest.raises(torch.OutOfMemoryError):
        train(device, make_model, loss_of)
    # All of the memory is another budget that keeps to it, by evicting more than planned.
    for budget in (estimated.largest.budget_bytes, memory_mib * MIB):
        session = remat.Session(budget, device=device)
        _, reserved = train(device, make_model, loss_of, session)
        assert max(reserved) <= memory_mib * MIB
        assert session.report().peak_bytes <= budget

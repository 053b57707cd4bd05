"""The simulated accelerator (tests/device) as Python sees it."""

import pytest
import torch

import simulated_device

pytestmark = pytest.mark.skipif(simulated_device.LIBRARY is None, reason="REMAT_SIMULATED_DEVICE names no library")


def train(device, dropout=0.0):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(inplace=True),
        torch.nn.Flatten(),
        torch.nn.Dropout(dropout),
        torch.nn.Linear(8 * 36, 5),
    )
    inputs, labels = torch.randn(4, 3, 8, 8).to(device), torch.tensor([0, 1, 2, 3]).to(device)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    return [*losses, *(value.detach().cpu() for value in model.state_dict().values())]


def same(values, others):
    return all(torch.equal(value, other) for value, other in zip(values, others, strict=True))


def test_training_has_the_bits_of_the_cpu():
    device = simulated_device.load()
    assert torch.accelerator.current_accelerator() == torch.device("simulated")
    assert torch.accelerator.device_count() == 2
    assert same(train(device), train("cpu"))
    torch.accelerator.reset_peak_memory_stats()
    before = torch.accelerator.memory_allocated()
    values = torch.ones(1000, device=device)
    assert torch.accelerator.memory_allocated() - before == 4096
    assert values.sum().item() == 1000


def test_dropout_repeats_from_the_seed():
    device = simulated_device.load()
    assert same(train(device, 0.5), train(device, 0.5))
    state = torch.simulated.get_rng_state()
    first = torch.rand(8, device=device)
    torch.simulated.set_rng_state(state)
    assert torch.equal(first.cpu(), torch.rand(8, device=device).cpu())


def test_random_operators_can_draw_on_the_cpu():
    device = simulated_device.load()
    torch.ops.remat_simulated.set_draw_on_cpu(True)
    try:
        torch.manual_seed(3)
        drawn = torch.rand(8, device=device)
    finally:
        torch.ops.remat_simulated.set_draw_on_cpu(False)
    torch.manual_seed(3)
    assert torch.equal(drawn.cpu(), torch.rand(8))


def test_memory_runs_out():
    device = simulated_device.load()
    torch.accelerator.empty_cache()
    torch.ops.remat_simulated.set_capacity(0, 32 << 20)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            torch.empty(40 << 20, dtype=torch.uint8, device=device)
    finally:
        torch.ops.remat_simulated.set_capacity(0, 256 << 20)


def test_streams_events_and_autocast():
    device = simulated_device.load()
    stream, event = torch.Stream(device), torch.Event(device)
    with stream:
        values = torch.ones(2, 2, device=device).mul(2)
    event.record(stream)
    event.synchronize()
    assert values.sum().item() == 8
    with torch.autocast("simulated", dtype=torch.bfloat16):
        assert (values @ values).dtype == torch.bfloat16

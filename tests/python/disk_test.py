"""Sessions that move values to a disk."""

import json

import pytest
import torch

import remat


def loss_of(layers, x):
    for layer in layers:
        x = torch.tanh(layer(x))
    return x.pow(2).mean()


def gradients(layers):
    found = [parameter.grad.clone() for layer in layers for parameter in layer.parameters()]
    for layer in layers:
        layer.zero_grad()
    return found


@pytest.fixture
def layers():
    torch.manual_seed(0)
    return [torch.nn.Linear(64, 64) for _ in range(8)]


def moving(plan_json):
    """The plan with every value that it recomputes moved."""
    plan = json.loads(plan_json)
    recomputed = [value for values in plan["actions"]["recompute"].values() for value in values]
    plan["actions"]["recompute"] = {}
    plan["actions"]["move"] = sorted(plan["actions"]["move"] + recomputed)
    return json.dumps(plan)


def test_moved_values_come_back_with_their_bits(layers, tmp_path):
    x = torch.randn(1024, 64)
    loss_of(layers, x).backward()
    plain = gradients(layers)
    session = remat.Session(disk=f"64MiB:{tmp_path}", planner="drop-all")
    for _ in range(2):
        with session.step():
            loss_of(layers, x).backward()
        gradients(layers)
    path = tmp_path / "plan.json"
    path.write_text(moving(session.plan().to_json()))
    session = remat.Session(disk=f"64MiB:{tmp_path}", plan=path, verify=True)
    for step in range(3):
        with session.step():
            loss_of(layers, x).backward()
        assert all(map(torch.equal, gradients(layers), plain))
    report = session.report()
    assert report.decided_by == "plan given"
    assert report.values_moved >= 7
    assert report.moved_bytes >= 7 * x.nbytes
    assert "moved to disk" in str(report)
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize(
    ("disk", "message"),
    [
        ("100GiB", "has no colon"),
        ("40%:/tmp", "is no number of bytes"),
        ("1GiB:/nowhere/at/all", "/nowhere/at/all"),
        (7, "disk is 7; use bytes and a directory"),
    ],
)
def test_a_disk_that_is_none_is_refused(disk, message):
    with pytest.raises(remat.Error, match=message):
        remat.Session(disk=disk)


def test_a_wrapped_model_takes_a_disk(layers, tmp_path):
    model = torch.nn.Sequential(*layers)
    x = torch.randn(256, 64)
    model(x).sum().backward()
    plain = gradients(layers)
    wrapped = remat.wrap(model, budget="60%", disk=f"64MiB:{tmp_path}")
    for _ in range(4):
        wrapped(x).sum().backward()
        assert all(map(torch.equal, gradients(layers), plain))


@pytest.mark.parametrize(
    ("host", "message"),
    [("1GiB", "host memory is where tensors of the cpu device are"), (True, "True has no meaning"), ("40%", "host")],
)
def test_host_memory_is_for_devices(host, message):
    with pytest.raises(remat.Error, match=message):
        remat.Session(device="cpu", host=host)

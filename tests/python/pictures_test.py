"""`remat train --task classify` on pictures: files in the forms of MNIST and CIFAR that are made here."""

import json
import os
import struct
import subprocess

import pytest
import torch

COMMAND = os.environ.get("REMAT_COMMAND")
if not COMMAND:
    pytest.skip("REMAT_COMMAND names no command: run these by ctest", allow_module_level=True)

VIT = ["--model", "vit", "--layers", "3", "--width", "32", "--heads", "2"]


def pictures(count, channels, side, seed):
    """Noise, and in one of four corners, which is the label, a bright square."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 100, (count, channels, side, side), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 4, (count,), generator=generator)
    for picture, label in zip(pixels, labels):
        top, left = (side // 2 * int(i) for i in (label // 2, label % 2))
        picture[:, top:top + side // 2, left:left + side // 2] += 120
    return pixels, labels.tolist()


def write_mnist(path, name, count, seed):
    pixels, labels = pictures(count, 1, 28, seed)
    (path / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, count, 28, 28) + pixels.numpy().tobytes())
    (path / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, count) + bytes(labels))


def write_cifar(path, count, seed, prefix=b""):
    pixels, labels = pictures(count, 3, 32, seed)
    path.write_bytes(b"".join(prefix + bytes([label]) + picture.numpy().tobytes()
                              for picture, label in zip(pixels, labels)))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures")
    for name in ("mnist", "cifar10", "cifar100"):
        (path / name).mkdir()
    write_mnist(path / "mnist", "train", 120, seed=1)
    write_mnist(path / "mnist", "t10k", 30, seed=2)
    for i in range(1, 6):
        write_cifar(path / "cifar10" / f"data_batch_{i}.bin", 24, seed=i)
    write_cifar(path / "cifar10" / "test_batch.bin", 30, seed=6)
    write_cifar(path / "cifar100" / "train.bin", 60, seed=1, prefix=b"\x13")
    write_cifar(path / "cifar100" / "test.bin", 30, seed=2, prefix=b"\x13")
    return path


def train(directory, data, *words, out):
    result = directory / f"{out}.json"
    done = subprocess.run([COMMAND, "train", "--task", "classify", "--data", data, "--batch", "16", "--steps", "4",
                           "--lr", "2e-3", "--json", result, *map(str, words)],
                          capture_output=True, text=True, cwd=directory)
    report = json.loads(result.read_text()) if done.returncode == 0 else {"steps": []}
    return done, report, [step["loss_bits"] for step in report["steps"]]


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_learns(directory, data):
    done, report, _ = train(directory, data, "--model", "resnet20", "--steps", 30, "--eval", data, "--budget", "60%",
                            out="learnt")
    assert done.returncode == 0, done.stderr
    accuracy = report["evaluation"]["accuracy"]
    assert accuracy["before"] < 0.6 and accuracy["after"] > 0.9, accuracy
    assert "examples per second" in done.stdout


@pytest.mark.parametrize("model", [["--model", "resnet20"], ["--model", "efficientnet"], VIT])
def test_a_budget_changes_no_bit(directory, model):
    plain, _, losses = train(directory, "cifar100", *model, "--plain", out="plain")
    assert plain.returncode == 0, plain.stderr
    within, _, same = train(directory, "cifar100", *model, "--budget", "60%", out="within")
    assert within.returncode == 0, within.stderr
    assert losses == same and len(set(losses)) == 4


def test_a_checkpoint_continues_with_the_same_bits(directory):
    _, _, whole = train(directory, "mnist", "--model", "resnet20", "--steps", 10, out="whole")
    train(directory, "mnist", "--model", "resnet20", "--steps", 3, "--checkpoint", "run.ckpt", out="first")
    done, _, rest = train(directory, "mnist", "--model", "resnet20", "--steps", 10, "--checkpoint", "run.ckpt",
                          "--resume", out="second")
    assert done.returncode == 0, done.stderr
    assert rest == whole[3:] and len(rest) == 7


def test_a_refused_step_leaves_the_running_means_as_they_were(directory):
    words = ["--model", "resnet20", "--eval", "mnist", "--batch", 12]
    _, whole, _ = train(directory, "mnist", *words, out="untouched")
    refused, _, _ = train(directory, "mnist", *words, "--budget", "10%", "--checkpoint", "means.ckpt", out="refused")
    assert refused.returncode == 3 and "saved step 1 in means.ckpt" in refused.stdout, refused.stderr
    done, report, _ = train(directory, "mnist", *words, "--checkpoint", "means.ckpt", "--resume", out="resumed")
    assert done.returncode == 0, done.stderr
    assert report["evaluation"]["after"] == whole["evaluation"]["after"]


@pytest.mark.parametrize("model", [["--model", "resnet20"], VIT])
def test_processes_may_hold_a_part_of_the_model_each(directory, model):
    copies, _, losses = train(directory, "mnist", *model, "--ranks", 2, out="copies")
    if "built without" in copies.stderr:
        pytest.skip("this build has no --ranks")
    shards, _, same = train(directory, "mnist", *model, "--ranks", 2, "--shard", "--budget", "90%", out="shards")
    assert shards.returncode == 0, shards.stderr
    assert losses[0] == same[0] and len(same) == 4


@pytest.mark.parametrize("option", ["--json", "--save-plan", "--checkpoint"])
def test_no_result_takes_the_place_of_a_picture(directory, option):
    path = directory / "mnist" / "train-labels-idx1-ubyte"
    before = path.read_bytes()
    (directory / "link").unlink(missing_ok=True)
    (directory / "link").symlink_to(path)
    for name in ("mnist/train-labels-idx1-ubyte", "link"):
        done, _, _ = train(directory, "mnist", *VIT, option, name, out="replaced")
        assert done.returncode == 2 and "are the same file" in done.stderr, done.stderr
    assert path.read_bytes() == before


def test_files_that_are_not_of_the_form_are_refused(directory):
    broken = directory / "broken"
    broken.mkdir()
    done, _, _ = train(directory, "broken", *VIT, out="none")
    assert done.returncode == 1 and "'broken' has none of train-images-idx3-ubyte (MNIST)" in done.stderr, done.stderr
    write_mnist(broken, "train", 5, seed=1)
    images = broken / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1])
    done, _, _ = train(directory, "broken", *VIT, out="short")
    assert done.returncode == 1 and "and its beginning says 3936" in done.stderr, done.stderr
    done, _, _ = train(directory, "cifar10", *VIT, "--eval", "cifar100", out="other")
    assert done.returncode == 1 and "'cifar100' has 100 classes, and the training has 10" in done.stderr, done.stderr
    (directory / "loop").symlink_to("loop")
    for name, message in [("nowhere", "No such file"), ("loop", "symbolic links"), ("a" * 300, "too long"),
                          ("none.json", "is no directory")]:
        (directory / "none.json").touch()
        done, _, _ = train(directory, name, *VIT, out="unreadable")
        assert done.returncode == 1 and message in done.stderr and "[internal]" not in done.stderr, done.stderr


@pytest.mark.parametrize("words, message", [
    ([], "--task classify needs a model that classifies"),
    (["--model", "mlp"], "--task classify needs a model that classifies"),
    (["--model", "vit", "--task", "next-token"], "--model vit needs --task classify"),
    (["--model", "resnet20", "--layers", "3"], "--layers has no effect with --model resnet20"),
    (["--model", "vit", "--seq", "3"], "--seq has no effect with --task classify without --hf"),
    (["--model", "vit", "--width", "30", "--heads", "4"], "--width 30 is not a multiple of --heads 4"),
    (["--model", "vit", "--save-hf", "x"], "--save-hf has no effect without --hf"),
])
def test_options_that_contradict_each_other_are_refused(directory, words, message):
    done, _, _ = train(directory, "mnist", *words, out="refused")
    assert done.returncode == 2 and message in done.stderr, done.stderr

"""`remat train --task classify` on folders of PNG and JPEG files, one for each class."""

import json
import os
import random
import shutil
import struct
import subprocess
import zlib

import pytest

COMMAND = os.environ.get("REMAT_COMMAND")
if not COMMAND:
    pytest.skip("REMAT_COMMAND names no command: run these by ctest", allow_module_level=True)

VIT = ["--model", "vit", "--layers", "2", "--width", "32", "--heads", "2"]
CLASSES = ["bottom", "left", "right", "top"]


def png(width, height, grey):
    """The file of a grey picture; `grey(row, column)` from 0 to 255."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + bytes(grey(row, column) for column in range(width)) for row in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def picture(label, rng):
    """Noise, of which the side that the class is named for is bright."""
    width, height = rng.randrange(20, 60), rng.randrange(20, 60)
    inside = dict(bottom=lambda r, c: 2 * r >= height, top=lambda r, c: 2 * r < height,
                  right=lambda r, c: 2 * c >= width, left=lambda r, c: 2 * c < width)[label]
    return png(width, height, lambda row, column: rng.randrange(100) + (150 if inside(row, column) else 0))


def write_folder(path, each, seed):
    rng = random.Random(seed)
    for label in CLASSES:
        (path / label / "more").mkdir(parents=True)
        for i in range(each):
            (path / label / ("more" if i % 3 == 0 else ".") / f"{i}.png").write_bytes(picture(label, rng))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("folders")
    write_folder(path / "train", 20, seed=1)
    write_folder(path / "test", 5, seed=2)
    (path / "train" / "left" / "notes.txt").write_text("no picture")
    (path / "train" / "left" / ".hidden.png").write_text("no picture")
    (path / "train" / ".git").mkdir()
    built, _, _ = train(path, "train", *VIT, "--steps", 1, out="built")
    if "without libpng or libjpeg" in built.stderr:
        pytest.skip("this build has no libpng or no libjpeg")
    return path


def train(directory, data, *words, out):
    result = directory / f"{out}.json"
    result.unlink(missing_ok=True)
    done = subprocess.run([COMMAND, "train", "--task", "classify", "--data", data, "--image-size", "32", "--batch", "16",
                           "--steps", "4", "--lr", "2e-3", "--json", result, *map(str, words)],
                          capture_output=True, text=True, errors="replace", cwd=directory)
    report = json.loads(result.read_text()) if done.returncode == 0 else {"steps": []}
    return done, report, [step["loss_bits"] for step in report["steps"]]


def test_learns(directory):
    done, report, _ = train(directory, "train", "--model", "resnet20", "--steps", 40, "--eval", "test", "--budget", "60%",
                            out="learnt")
    assert done.returncode == 0, done.stderr
    assert "4 classes: 'bottom', 'left', 'right', 'top'" in done.stdout
    accuracy = report["evaluation"]["accuracy"]
    assert accuracy["before"] < 0.6 and accuracy["after"] > 0.9, accuracy


@pytest.mark.parametrize("model", [["--model", "resnet20", "--image-size", 48], VIT])
def test_a_budget_changes_no_bit(directory, model):
    plain, _, losses = train(directory, "train", *model, "--plain", out="plain")
    assert plain.returncode == 0, plain.stderr
    within, _, same = train(directory, "train", *model, "--budget", "70%", out="within")
    assert within.returncode == 0, within.stderr
    assert losses == same and len(set(losses)) == 4


def test_a_checkpoint_continues_with_the_same_bits(directory):
    _, _, whole = train(directory, "train", *VIT, "--steps", 9, out="whole")
    train(directory, "train", *VIT, "--steps", 4, "--checkpoint", "run.ckpt", out="first")
    done, _, rest = train(directory, "train", *VIT, "--steps", 9, "--checkpoint", "run.ckpt", "--resume", out="second")
    assert done.returncode == 0, done.stderr
    assert rest == whole[4:] and len(rest) == 5, "9 steps of 16 are more than one epoch of 80"
    done, _, _ = train(directory, "train", *VIT, "--image-size", 36, "--checkpoint", "run.ckpt", "--resume", out="other")
    assert done.returncode == 1 and "image-size" in done.stderr, done.stderr


def test_the_seed_decides_the_order(directory):
    runs = [train(directory, "train", *VIT, "--dropout", 0, "--seed", seed, out="order")[2] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_processes_share_a_batch(directory):
    one, alone, _ = train(directory, "train", *VIT, "--dropout", 0, out="alone")
    assert one.returncode == 0, one.stderr
    two, report, _ = train(directory, "train", *VIT, "--dropout", 0, "--ranks", 2, out="two")
    if "built without" in two.stderr:
        pytest.skip("this build has no --ranks")
    assert two.returncode == 0, two.stderr
    for step, other in zip(alone["steps"], report["steps"]):
        assert step["loss"] == pytest.approx(other["loss"], rel=1e-3)


def refused(directory, *words, data="bad", code=1):
    done, _, _ = train(directory, data, *(words or VIT), out="refused")
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stderr.count("\n") == 1 and "[internal]" not in done.stderr, done.stderr
    return done.stderr


@pytest.fixture
def bad(directory):
    shutil.rmtree(directory / "bad", ignore_errors=True)
    shutil.copytree(directory / "test", directory / "bad")
    return directory / "bad"


def test_class_names_that_are_no_text_are_refused(directory, bad):
    os.rename(bad / "left", os.fsencode(bad) + b"/l\xffeft")
    assert "no UTF-8" in refused(directory)


def test_folders_that_are_no_classes_are_refused(directory, bad):
    shutil.rmtree(bad / "left" / "more")
    for file in (bad / "left").iterdir():
        file.unlink()
    assert "'bad/left' has no .png, .jpg or .jpeg files" in refused(directory)
    for label in CLASSES[1:]:
        shutil.rmtree(bad / label)
    assert "'bad' has the class 'bottom' alone" in refused(directory)
    shutil.rmtree(bad / "bottom")
    assert "no folders of pictures, one for each class" in refused(directory)
    write_folder(bad / "train", 1, seed=1)
    write_folder(bad / "val", 1, seed=1)
    assert "'train', 'val', which are parts of a data set" in refused(directory)


def test_pictures_that_cannot_be_read_are_refused_by_name(directory, bad):
    (bad / "top" / "x.webp").write_bytes(b"RIFF")
    assert "'bad/top/x.webp' is of a format that is not read" in refused(directory)
    (bad / "top" / "x.webp").unlink()
    (bad / "top" / "link.png").symlink_to("nowhere")
    assert "'bad/top/link.png' cannot be read (No such file" in refused(directory)
    (bad / "top" / "link.png").unlink()
    (bad / "top" / "loop").symlink_to(".")
    assert "folders within each other" in refused(directory) or "symbolic links" in refused(directory)
    (bad / "top" / "loop").unlink()
    whole = (bad / "top" / "1.png").read_bytes()
    (bad / "top" / "1.png").write_bytes(whole[:-30])  # met in the first epoch, not at the start
    message = refused(directory, *VIT, "--batch", 20, "--steps", 1)
    assert "'bad/top/1.png' cannot be read as PNG (the file is truncated)" in message


def test_other_classes_of_the_held_out_pictures_are_refused(directory, bad):
    (bad / "left").rename(bad / "west")
    message = refused(directory, *VIT, "--eval", "bad", data="train")
    assert "'bad' has the class 'west', which is none of the training's, 'bottom', 'left', 'right', 'top'" in message


@pytest.mark.parametrize("option", ["--json", "--save-plan", "--checkpoint"])
def test_no_result_takes_the_place_of_a_picture(directory, option):
    path = directory / "train" / "top" / "1.png"
    before = path.read_bytes()
    (directory / "link").unlink(missing_ok=True)
    (directory / "link").symlink_to(path)
    for name in ("train/top/1.png", "link"):
        assert "is a picture; give another path" in refused(directory, *VIT, option, name, data="train", code=2)
    assert path.read_bytes() == before


@pytest.mark.parametrize("words, message", [
    (["--model", "vit", "--image-size", "70"], "--image-size 70 is not a multiple of 16"),
    (["--model", "gpt", "--task", "next-token"], "--image-size has no effect with --task next-token"),
    (["--hf", "train"], "--image-size has no effect with --hf"),
    (["--model", "resnet20", "--image-size", "5000"], "'5000' is not a number from 1 to 4096"),
])
def test_options_that_contradict_each_other_are_refused(directory, words, message):
    assert message in refused(directory, *words, data="train", code=2)

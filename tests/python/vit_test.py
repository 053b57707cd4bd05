"""`remat train --task classify --hf DIR` of a ViT: pixels as Pillow makes them, losses as transformers computes them, and
weights that transformers loads."""

import json
import os
import subprocess

import numpy
import pytest
import torch
from safetensors.torch import load_file

transformers = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")
COMMAND = os.environ.get("REMAT_COMMAND")
if not COMMAND:
    pytest.skip("REMAT_COMMAND names no command: run these by ctest", allow_module_level=True)

SIDE = 16
CLASSES = ["blue", "green", "red"]
VIT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=SIDE, patch_size=4,
           initializer_range=0.2)
PROCESSOR = dict(image_processor_type="ViTImageProcessor", do_resize=True, size=dict(height=SIDE, width=SIDE), resample=2,
                 do_rescale=True, rescale_factor=1 / 255, do_normalize=True, image_mean=[0.4, 0.5, 0.6],
                 image_std=[0.2, 0.3, 0.5])


def write_pictures(path, each, seed):
    """Noise with more of the colour that the class is named for, PNG and JPEG in turn."""
    generator = numpy.random.default_rng(seed)
    for number, name in enumerate(reversed(CLASSES)):  # red is channel 0
        (path / name).mkdir(parents=True)
        for i in range(each):
            pixels = generator.integers(0, 170, (*generator.integers(10, 60, 2), 3), dtype=numpy.uint8)
            pixels[..., number] += 80
            ending = ("png", "jpg", "jpeg")[i % 3]
            Image.fromarray(pixels).save(path / name / f"{i}.{ending}")


def save_model(path, processor=PROCESSOR, **config):
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**VIT, **config))
    model.save_pretrained(path)
    (path / "preprocessor_config.json").write_text(json.dumps(processor))


def skip_without_decoders(path, model):
    built, _, _ = train(path, model, "--steps", 1, out="built")
    if "without libpng or libjpeg" in built.stderr:
        pytest.skip("this build has no libpng or no libjpeg")


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("vit")
    write_pictures(path / "train", 12, seed=1)
    write_pictures(path / "test", 5, seed=2)
    save_model(path / "named", id2label=dict(enumerate(CLASSES[::-1])), label2id={n: i for i, n in enumerate(CLASSES[::-1])})
    save_model(path / "two", num_labels=2)
    save_model(path / "ten", num_labels=10)
    skip_without_decoders(path, "named")
    return path


def train(directory, model, *words, out, data="train"):
    result = directory / f"{out}.json"
    done = subprocess.run([COMMAND, "train", "--task", "classify", "--hf", model, "--data", data, "--batch", "9", "--steps",
                           "4", "--lr", "1e-3", "--json", result, *map(str, words)],
                          capture_output=True, text=True, cwd=directory)
    report = json.loads(result.read_text()) if done.returncode == 0 else {"steps": []}
    return done, report, [step["loss_bits"] for step in report["steps"]]


def pixel_values(pictures, processor=PROCESSOR):
    """What preprocessor_config.json says, by Pillow and NumPy."""
    def resized(picture):  # rows first, as remat does; Pillow 13 takes what is cheaper
        bilinear = Image.Resampling.BILINEAR
        return picture.convert("RGB").resize((SIDE, picture.height), bilinear).resize((SIDE, SIDE), bilinear)
    rows = [numpy.asarray(resized(picture)) for picture in pictures]
    values = numpy.stack(rows) * processor["rescale_factor"]
    values = (values - processor["image_mean"]) / processor["image_std"]
    return torch.from_numpy(values.astype(numpy.float32)).permute(0, 3, 1, 2)


def loss_of_transformers(directory, model, data):
    """Loss and accuracy on all pictures of a folder."""
    model = transformers.ViTForImageClassification.from_pretrained(directory / model).eval()
    files = sorted(file for file in (directory / data).rglob("*.*"))
    targets = torch.tensor([model.config.label2id[file.parent.name] for file in files])
    with torch.no_grad():
        logits = model(pixel_values=pixel_values([Image.open(file) for file in files])).logits
    return torch.nn.functional.cross_entropy(logits, targets).item(), (logits.argmax(-1) == targets).float().mean().item()


def test_losses_are_those_of_transformers(directory):
    done, report, _ = train(directory, "named", "--steps", 60, "--eval", "test", "--save-hf", "tuned", out="learnt")
    assert done.returncode == 0, done.stderr
    assert "3 classes: 'red', 'green', 'blue'" in done.stdout, "in the order of config.json"
    evaluation = report["evaluation"]
    for model, when in (("named", "before"), ("tuned", "after")):
        loss, accuracy = loss_of_transformers(directory, model, "test")
        assert evaluation[when] == pytest.approx(loss, rel=1e-4, abs=1e-6), when
        assert evaluation["accuracy"][when] == pytest.approx(accuracy), when
    assert evaluation["accuracy"]["after"] > 0.9, evaluation
    assert (directory / "tuned" / "preprocessor_config.json").exists()


def test_a_training_step_is_that_of_transformers(directory):
    done, report, _ = train(directory, "named", "--batch", 36, "--steps", 2, "--weight-decay", 0, out="steps")
    assert done.returncode == 0, done.stderr
    model = transformers.ViTForImageClassification.from_pretrained(directory / "named")
    files = sorted((directory / "train").rglob("*.*"))
    targets = torch.tensor([model.config.label2id[file.parent.name] for file in files])
    values = pixel_values([Image.open(file) for file in files])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    for step in report["steps"]:  # both are of all 36 pictures
        loss = torch.nn.functional.cross_entropy(model(pixel_values=values).logits, targets)
        assert step["loss"] == pytest.approx(loss.item(), rel=1e-4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_a_budget_changes_no_bit(directory):
    plain, _, losses = train(directory, "named", "--plain", "--save-hf", "plain", out="plain")
    assert plain.returncode == 0, plain.stderr
    within, _, same = train(directory, "named", "--budget", "60%", "--save-hf", "within", out="within")
    assert within.returncode == 0, within.stderr
    assert losses == same and len(set(losses)) == 4
    tensors, others = (load_file(directory / name / "model.safetensors") for name in ("plain", "within"))
    assert tensors.keys() == others.keys()
    for key, tensor in tensors.items():
        assert torch.equal(tensor, others[key]), key


def test_the_pixels_of_collections_are_resized_too(directory):
    generator = numpy.random.default_rng(3)
    pixels = generator.integers(0, 256, (10, 3, 32, 32), dtype=numpy.uint8)
    records = b"".join(bytes([i]) + picture.tobytes() for i, picture in enumerate(pixels))
    (directory / "cifar").mkdir()
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (directory / "cifar" / f"{name}.bin").write_bytes(records)
    done, report, _ = train(directory, "ten", "--eval", "cifar", "--steps", 1, out="cifar", data="cifar")
    assert done.returncode == 0, done.stderr
    model = transformers.ViTForImageClassification.from_pretrained(directory / "ten").eval()
    with torch.no_grad():
        logits = model(pixel_values=pixel_values([Image.fromarray(picture.transpose(1, 2, 0)) for picture in pixels])).logits
    assert report["evaluation"]["before"] == pytest.approx(
        torch.nn.functional.cross_entropy(logits, torch.arange(10)).item(), rel=1e-4)


def test_the_processor_of_transformers_agrees(directory):
    """As far as what it resizes with agrees with Pillow."""
    processor = transformers.AutoImageProcessor.from_pretrained(directory / "named", backend="pil")
    picture = Image.open(directory / "test" / "red" / "0.png")
    theirs = torch.from_numpy(numpy.asarray(processor(picture, return_tensors="np")["pixel_values"]))
    step = 1.01 / 255 / min(PROCESSOR["image_std"])  # of one pixel, where Pillow takes columns first
    torch.testing.assert_close(theirs, pixel_values([picture]), rtol=1e-4, atol=step)


REFUSED = {
    "another filter": (dict(resample=3), '3 for "resample"'),
    "another size": (dict(size=dict(height=24, width=24)), "sees 16 x 16 pixels"),
    "proportions": (dict(size=dict(shortest_edge=SIDE)), '"shortest_edge"'),
    "crop": (dict(do_center_crop=True), 'true for "do_center_crop"'),
    "no numbers": (dict(image_mean=[0.5, "x", 0.5]), 'for "image_mean", which is not three numbers'),
    "no deviation": (dict(image_std=[0.5, 0, 0.5]), 'a number in "image_std" that is not above 0'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_remat_does_not_do_is_refused(directory, case):
    settings, message = REFUSED[case]
    save_model(directory / "other", dict(PROCESSOR, **settings), num_labels=3)
    done, _, _ = train(directory, "other", out="refused")
    assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_other_directories_are_refused(directory):
    done, _, _ = train(directory, "two", out="refused")
    assert done.returncode == 1 and "'train' has 3 labels" in done.stderr and "knows 2 classes" in done.stderr, done.stderr
    save_model(directory / "other", num_labels=3)
    (directory / "other" / "preprocessor_config.json").unlink()
    done, _, _ = train(directory, "other", out="refused")
    assert done.returncode == 1 and "'other' has no preprocessor_config.json" in done.stderr, done.stderr

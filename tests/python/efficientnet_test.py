"""`remat train --task classify --hf DIR` of an EfficientNet: pixels, losses, updates and running statistics as those of
transformers."""

import json
import os

import numpy
import pytest
import torch
from safetensors.torch import load_file

transformers = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")
if not os.environ.get("REMAT_COMMAND"):
    pytest.skip("REMAT_COMMAND names no command: run these by ctest", allow_module_level=True)

from vit_test import CLASSES, skip_without_decoders, train, write_pictures  # noqa: E402

SIDE = 48
SIZES = dict(width_coefficient=0.25, depth_coefficient=1.0, hidden_dim=320, image_size=SIDE, dropout_rate=0.0,
             drop_connect_rate=0.0, batch_norm_momentum=0.3, depthwise_padding=[5])
PROCESSOR = dict(image_processor_type="EfficientNetImageProcessor", do_resize=True, size=dict(height=SIDE, width=SIDE),
                 resample=0, do_center_crop=False, do_rescale=True, rescale_factor=1 / 255, rescale_offset=False,
                 do_normalize=True, image_mean=[0.4, 0.5, 0.6], image_std=[0.6, 0.7, 0.5], include_top=True)


def save_model(path, processor=PROCESSOR, **config):
    torch.manual_seed(0)
    names = dict(id2label=dict(enumerate(CLASSES)), label2id={name: i for i, name in enumerate(CLASSES)})
    model = transformers.EfficientNetForImageClassification(
        transformers.EfficientNetConfig(**{**SIZES, **names, **config}))
    for module in model.modules():  # transformers draws the scales of BatchNorm around 0
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.num_batches_tracked.fill_(7)
        elif isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight)
    model.save_pretrained(path)
    (path / "preprocessor_config.json").write_text(json.dumps(processor))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("efficientnet")
    write_pictures(path / "train", 8, seed=1)
    save_model(path / "model")
    skip_without_decoders(path, "model")
    return path


def load(path):
    return transformers.EfficientNetForImageClassification.from_pretrained(path)


def examples(directory, data, model):
    """Pixels as transformers' own processor makes them, with Pillow, and the classes' numbers."""
    processor = transformers.AutoImageProcessor.from_pretrained(directory / "model", backend="pil")
    files = sorted((directory / data).rglob("*.*"))
    pictures = [Image.open(file).convert("RGB") for file in files]
    pixels = numpy.stack(processor(pictures, return_tensors="np")["pixel_values"])
    return torch.from_numpy(pixels).float(), torch.tensor([model.config.label2id[file.parent.name] for file in files])


def test_training_is_that_of_transformers(directory):
    """Loss before, two steps of all pictures, the weights and running statistics that are saved, loss after."""
    done, report, _ = train(directory, "model", "--batch", 24, "--steps", 2, "--weight-decay", 0, "--eval", "train",
                            "--save-hf", "tuned", out="steps")
    assert done.returncode == 0, done.stderr
    model = load(directory / "model")
    pixels, targets = examples(directory, "train", model)
    with torch.no_grad():
        before = torch.nn.functional.cross_entropy(model.eval()(pixel_values=pixels).logits, targets)
    assert report["evaluation"]["before"] == pytest.approx(before.item(), rel=1e-4)
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3, weight_decay=0)
    for step in report["steps"]:
        loss = torch.nn.functional.cross_entropy(model(pixel_values=pixels).logits, targets)
        assert step["loss"] == pytest.approx(loss.item(), rel=1e-3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tuned = load(directory / "tuned")
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(tuned.get_buffer(name), buffer, rtol=1e-2, atol=1e-2, msg=lambda text: f"{name}: {text}")
    with torch.no_grad():
        after = torch.nn.functional.cross_entropy(tuned.eval()(pixel_values=pixels).logits, targets)
    assert report["evaluation"]["after"] == pytest.approx(after.item(), rel=1e-4)


def test_a_budget_changes_no_bit(directory):
    """Dropout, too, which transformers has for single elements."""
    save_model(directory / "dropping", dropout_rate=0.3, drop_connect_rate=0.4)
    plain, _, losses = train(directory, "dropping", "--plain", "--save-hf", "plain", out="plain")
    assert plain.returncode == 0, plain.stderr
    within, _, same = train(directory, "dropping", "--budget", "70%", "--save-hf", "within", out="within")
    assert within.returncode == 0, within.stderr
    assert losses == same and len(set(losses)) == 4
    tensors, others = (load_file(directory / name / "model.safetensors") for name in ("plain", "within"))
    assert tensors.keys() == others.keys() and any(name.endswith("running_var") for name in tensors)
    for key, tensor in tensors.items():
        assert torch.equal(tensor, others[key]), key


REFUSED = {
    "another filter": ({}, dict(resample=3), '3 for "resample"'),
    "no filter": ({}, dict(resample=None), 'has no "resample"'),
    "an offset": ({}, dict(rescale_offset=True), 'true for "rescale_offset"'),
    "other kernels": (dict(kernel_sizes=[3, 3, 5, 3, 5, 5, 5]), {}, 'for "kernel_sizes"'),
    "another head": (dict(hidden_dim=1280), {}, '1280 for "hidden_dim"'),
    "no width": (dict(width_coefficient=0.0), {}, "width is 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_remat_does_not_do_is_refused(directory, case):
    config, processor, message = REFUSED[case]
    save_model(directory / "other", PROCESSOR | processor)
    path = directory / "other" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    done, _, _ = train(directory, "other", out="refused")
    assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_statistics_that_are_missing_are_refused(directory):
    from safetensors.torch import save_file

    save_model(directory / "cut")
    tensors = load_file(directory / "cut" / "model.safetensors")
    del tensors["efficientnet.encoder.top_bn.running_var"]
    save_file(tensors, directory / "cut" / "model.safetensors", {"format": "pt"})
    done, _, _ = train(directory, "cut", out="refused")
    assert done.returncode == 1 and "have no tensor 'efficientnet.encoder.top_bn.running_var'" in done.stderr, done.stderr


def test_there_is_no_layer_for_factors(directory):
    done, _, _ = train(directory, "model", "--lora", 4, "--save-adapter", "adapter", out="refused")
    assert done.returncode == 1 and "take no factors" in done.stderr, done.stderr

"""Models of the zoo with weights that transformers wrote: the same logits and gradients, and the way back."""

import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

transformers = pytest.importorskip("transformers")
from pretrained_models import BERT, KINDS, MODELS, PROGRAM, VOCABULARY, inputs, make, run  # noqa: E402

if not PROGRAM:
    pytest.skip("REMAT_PRETRAINED_PROGRAM names no program: run these by ctest", allow_module_level=True)


SHARDED = ["gpt2", "llama", "phi3", "gemma3_text", "roberta with masked tokens", "vit", "efficientnet"]


@pytest.mark.parametrize("name, sharded", [*((name, False) for name in MODELS), *((name, True) for name in SHARDED)])
def test_computes_what_transformers_computes(name, sharded, tmp_path):
    task, model = make(name)
    if sharded:  # as large models are published
        model.to(torch.bfloat16).save_pretrained(tmp_path / "model", max_shard_size="10KB")
        model = type(model).from_pretrained(tmp_path / "model", dtype=torch.float32).train(model.training)
    else:
        model.save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors.index.json").exists() == sharded
    tensors, named = inputs(name)
    logits = model(**named).logits
    torch.nn.functional.cross_entropy(logits.flatten(0, -2), tensors["target"].flatten()).backward()

    done = run(tmp_path / "model", task, tensors, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "every parameter has weights"
    ours = load_file(tmp_path / "out.safetensors")["logits"]
    torch.testing.assert_close(ours, logits.detach(), rtol=1e-4, atol=1e-5)
    gradients = load_file(tmp_path / "gradients" / "model.safetensors")
    # The names of files are not always those of modules.
    for parameter in model.parameters():
        parameter.data = parameter.grad
    model.save_pretrained(tmp_path / "theirs")
    theirs = load_file(tmp_path / "theirs" / "model.safetensors")
    assert set(gradients) == set(theirs)
    for key, gradient in theirs.items():
        torch.testing.assert_close(gradients[key], gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max()) + 1e-7,
                                   msg=lambda text: f"{key}: {text}")

    again = type(model).from_pretrained(tmp_path / "saved")
    assert again.dtype == torch.float32
    model = type(model).from_pretrained(tmp_path / "model", dtype=torch.float32)
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key]), key


@pytest.mark.parametrize("name", KINDS)
def test_factors_are_merged_into_the_weights_beside_them(name, tmp_path):
    task, model = make(name)
    model.save_pretrained(tmp_path / "model")
    tensors, named = inputs(name)
    before = model(**named).logits
    done = run(tmp_path / "model", task, tensors, tmp_path, "*")
    assert done.returncode == 0, done.stderr
    logits = load_file(tmp_path / "out.safetensors")["logits"]
    merged = type(model).from_pretrained(tmp_path / "saved").eval()
    torch.testing.assert_close(merged(**named).logits.detach(), logits, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(before, logits, rtol=1e-2, atol=1e-2)
    if name == "vit":
        return
    peft = pytest.importorskip("peft")
    adapted = peft.PeftModel.from_pretrained(type(model).from_pretrained(tmp_path / "model"), tmp_path / "gradients").eval()
    torch.testing.assert_close(adapted(**named).logits.detach(), logits, rtol=1e-3, atol=1e-4)


def test_weights_of_a_base_model_get_a_new_head(tmp_path):
    torch.manual_seed(7)
    transformers.BertModel(transformers.BertConfig(**BERT)).save_pretrained(tmp_path / "model")
    done = run(tmp_path / "model", "classify", inputs("bert that classifies")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["classifier.weight", "classifier.bias"]
    saved = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert saved.config.num_labels == 3


REFUSED = {
    "no such kind": (dict(model_type="mamba"), "describes a mamba; there are gpt2, llama, mistral, "),
    "another activation": (dict(activation_function="relu"), '"relu" for "activation_function"'),
    "more layers than weights": (dict(n_layer=5), "have no tensor 'transformer.h.3.ln_1.weight'"),
    "more layers than any machine holds": (dict(n_layer=16000000), "describes"),
    "a wider model": (dict(n_embd=64), "config.json says [61, 64]"),
    "quantized": (dict(quantization_config={"quant_method": "fp8"}), "as it was before it was quantized"),
    "no number": (dict(n_head="four"), '"four" for "n_head", which is no number'),
}


@pytest.mark.parametrize("case", REFUSED)
def test_configurations_that_do_not_fit_are_refused(case, tmp_path):
    import json
    settings, message = REFUSED[case]
    task, model = make("gpt2")
    model.save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    done = run(tmp_path / "model", task, inputs("gpt2")[0], tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("[pretrained] ") and message in done.stderr, done.stderr


def saved_gpt2(path):
    task, model = make("gpt2")
    model.save_pretrained(path)
    return task, model


def files_of(path):
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_a_save_that_fails_leaves_the_directory_as_it_was(tmp_path):
    task, _ = saved_gpt2(tmp_path / "model")
    (tmp_path / "saved").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "saved" / name).write_text("older")
    (tmp_path / "model" / "vocabulary.txt").write_text("x" * 400_000)  # after the weights, beyond the limit of 200 KiB
    save_file(inputs("gpt2")[0], tmp_path / "in.safetensors")
    command = [PROGRAM, tmp_path / "model", task, tmp_path / "in.safetensors", tmp_path / "out.safetensors",
               tmp_path / "gradients", tmp_path / "saved"]
    limited = ["bash", "-c", 'trap "" XFSZ; ulimit -f 200; exec "$@"', "bash", *command]
    done = subprocess.run(limited, capture_output=True, text=True)
    assert done.returncode == 1 and "File too large" in done.stderr, done.stderr
    assert files_of(tmp_path / "saved") == {"config.json": b"older", "model.safetensors": b"older"}
    limited[-1] = tmp_path / "made" / "within"
    assert subprocess.run(limited, capture_output=True).returncode == 1
    assert not (tmp_path / "made").exists()


def test_a_save_follows_no_link_and_takes_no_mode(tmp_path):
    task, _ = saved_gpt2(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    for file in (tmp_path / "model").iterdir():
        file.chmod(0o444)
    before = files_of(tmp_path / "model")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "config.json").symlink_to(tmp_path / "model" / "config.json")
    (tmp_path / "saved" / "model.safetensors").symlink_to(tmp_path / "model" / "model.safetensors")
    os.link(tmp_path / "model" / "tokenizer.json", tmp_path / "saved" / "tokenizer.json")
    for _ in range(2):
        done = run(tmp_path / "model", task, inputs("gpt2")[0], tmp_path)
        assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "model") == before
    for file in (tmp_path / "saved").iterdir():
        assert not file.is_symlink() and file.stat().st_mode & 0o200 and file.stat().st_nlink == 1, file


def test_of_weights_in_one_file_and_in_several_the_one_is_read_and_an_old_index_goes(tmp_path):
    task, model = make("gpt2")
    model.save_pretrained(tmp_path / "saved", max_shard_size="20KB")
    with torch.no_grad():
        model.transformer.wte.weight.add_(1.0)
    model.save_pretrained(tmp_path / "model")
    done = run(tmp_path / "model", task, inputs("gpt2")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert [file.name for file in (tmp_path / "saved").glob("*.safetensors*")] == ["model.safetensors"]
    os.rename(tmp_path / "saved", tmp_path / "first")
    _, older = make("gpt2")
    older.save_pretrained(tmp_path / "first", max_shard_size="20KB")
    if not (tmp_path / "first" / "model.safetensors").exists():  # transformers removes it
        model.save_pretrained(tmp_path / "one")
        os.rename(tmp_path / "one" / "model.safetensors", tmp_path / "first" / "model.safetensors")
    done = run(tmp_path / "first", task, inputs("gpt2")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert torch.equal(load_file(tmp_path / "saved" / "model.safetensors")["transformer.wte.weight"],
                       model.transformer.wte.weight)


def change_weights(path, change):
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


WTE = "transformer.wte.weight"
REFUSED_WEIGHTS = {
    "eight bits": (lambda t: t.update({WTE: t[WTE].to(torch.float8_e4m3fn)}), "remat reads float32"),
    "integers": (lambda t: t.update({WTE: t[WTE].to(torch.int8)}), "remat reads float32"),
    "an adapter": (lambda t: t.update({f"lora.{i}": torch.ones(2) for i in range(5)}),
                   "have 5 tensors that the model of config.json has no place for ('lora.0', 'lora.1', 'lora.2', ...)"),
    "an output layer of its own": (lambda t: t.update({"lm_head.weight": t[WTE] + 1}), "other numbers"),
}


@pytest.mark.parametrize("case", REFUSED_WEIGHTS)
def test_weights_that_would_be_lost_are_refused(case, tmp_path):
    change, message = REFUSED_WEIGHTS[case]
    task, _ = saved_gpt2(tmp_path / "model")
    change_weights(tmp_path / "model", change)
    done = run(tmp_path / "model", task, inputs("gpt2")[0], tmp_path)
    assert done.returncode == 1 and message in done.stderr, done.stderr


def test_what_transformers_ignores_is_no_reason_to_refuse(tmp_path):
    task, _ = saved_gpt2(tmp_path / "model")
    change_weights(tmp_path / "model", lambda t: t.update({
        "transformer.h.0.attn.bias": torch.ones(4), "transformer.h.0.attn.masked_bias": torch.ones(1),
        "lm_head.weight": t[WTE].clone(), "score.weight": torch.ones(2, 32)}))
    done = run(tmp_path / "model", task, inputs("gpt2")[0], tmp_path)
    assert done.returncode == 0, done.stderr


def test_licenses_and_chat_templates_are_kept_and_programs_are_not(tmp_path):
    task, _ = saved_gpt2(tmp_path / "model")
    (tmp_path / "model" / "additional_chat_templates").mkdir()
    names = ["LICENSE", "NOTICE.md", "USE_POLICY.md", "README.md", "additional_chat_templates/tools.jinja"]
    for name in [*names, "modeling.py", "LICENSE.py"]:
        (tmp_path / "model" / name).write_text(name)
    done = run(tmp_path / "model", task, inputs("gpt2")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    saved = files_of(tmp_path / "saved")
    assert [saved.get(name) for name in names] == [name.encode() for name in names]
    assert not [name for name in saved if name.endswith(".py")]


def change_weights(directory, change):
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def test_weights_that_are_not_finite_are_refused_by_name(tmp_path):
    task, model = make("bert with masked tokens")
    model.save_pretrained(tmp_path / "model")
    tensors, _ = inputs("bert with masked tokens")
    word, norm = "bert.embeddings.word_embeddings.weight", "bert.encoder.layer.0.attention.output.LayerNorm.bias"

    def damage(weights):
        weights[word][3, 5] = float("nan")
        weights[word][3, 6] = float("-inf")
        weights[norm].fill_(float("inf"))

    change_weights(tmp_path / "model", damage)
    done = run(tmp_path / "model", task, tensors, tmp_path)
    assert done.returncode == 1
    assert f"'{word}' (2 of {VOCABULARY * 32} elements)" in done.stderr and f"'{norm}' (all 32 elements)" in done.stderr


def test_a_bias_may_hold_a_token_off(tmp_path):
    task, model = make("bert with masked tokens")
    model.save_pretrained(tmp_path / "model")
    tensors, _ = inputs("bert with masked tokens")
    change_weights(tmp_path / "model", lambda weights: weights["cls.predictions.bias"][7:9].fill_(float("-inf")))
    done = run(tmp_path / "model", task, tensors, tmp_path)
    assert done.returncode == 0, done.stderr
    logits = load_file(tmp_path / "out.safetensors")["logits"]
    assert torch.isinf(logits[..., 7:9]).all() and torch.isfinite(logits[..., 9:]).all()


def test_an_empty_tensor_needs_no_place(tmp_path):
    task, model = make("gpt2")
    model.save_pretrained(tmp_path / "model")
    tensors, _ = inputs("gpt2")
    change_weights(tmp_path / "model", lambda weights: weights.update(unused=torch.empty(0, 3, dtype=torch.int32)))
    done = run(tmp_path / "model", task, tensors, tmp_path)
    assert done.returncode == 0, done.stderr

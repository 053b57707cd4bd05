"""`remat train --hf`: models and tokenizers that transformers wrote, trained by the command, and read back."""

import json
import os
import shutil
import signal
import subprocess

import pytest
import safetensors.torch
import torch

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
COMMAND = os.environ.get("REMAT_COMMAND")
if not COMMAND:
    pytest.skip("REMAT_COMMAND names no command: run these by ctest", allow_module_level=True)

TEXT = "".join(f"In the beginning there were {i * i % 997} words, and nobody counted {i}. " for i in range(600))
TRAIN = ["--steps", "4", "--batch", "6", "--seq", "48"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("finetune")
    (path / "text").write_text(TEXT)
    tokenizer = tokenizers.ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([TEXT], vocab_size=400, special_tokens=["<|endoftext|>"])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token="<|endoftext|>")
    torch.manual_seed(0)
    models = {
        "gpt2": transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=len(fast), n_embd=64, n_layer=6, n_head=4, n_positions=64)),
        "llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=len(fast), hidden_size=64, intermediate_size=128, num_hidden_layers=6, num_attention_heads=4,
            num_key_value_heads=2)),
    }
    for name, model in models.items():
        model.save_pretrained(path / name)
        fast.save_pretrained(path / name)
    return path


def train(directory, name, *words, out):
    result = directory / f"{out}.json"
    done = subprocess.run([COMMAND, "train", "--hf", directory / name, "--data", directory / "text", *TRAIN,
                           "--json", result, *map(str, words)], capture_output=True, text=True, cwd=directory)
    steps = json.loads(result.read_text())["steps"] if done.returncode == 0 else []
    return done, [step["loss_bits"] for step in steps]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_budget_changes_no_bit_and_transformers_loads_the_result(directory, name):
    plain, losses = train(directory, name, "--plain", "--save-hf", directory / f"{name}-plain", out="plain")
    assert plain.returncode == 0, plain.stderr
    within, same = train(directory, name, "--budget", "60%", "--save-hf", directory / f"{name}-within", out="within")
    assert within.returncode == 0, within.stderr
    assert losses == same and len(set(losses)) == 4
    models = [transformers.AutoModelForCausalLM.from_pretrained(directory / f"{name}-{how}")
              for how in ("plain", "within")]
    before = transformers.AutoModelForCausalLM.from_pretrained(directory / name)
    ids = transformers.AutoTokenizer.from_pretrained(directory / f"{name}-within")(TEXT[:200], return_tensors="pt")
    loss = [model.eval()(**ids, labels=ids["input_ids"]).loss.item() for model in [before, *models]]
    assert loss[1] == loss[2] < loss[0]
    for key, tensor in models[0].state_dict().items():
        assert torch.equal(tensor, models[1].state_dict()[key]), key


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_frozen_weights_and_state_in_files_change_no_bit(directory, kind):
    source = directory / f"gpt2-{kind}"  # its linear layers are stored transposed
    shutil.copytree(directory / "gpt2", source)
    transformers.GPT2LMHeadModel.from_pretrained(source, dtype=getattr(torch, kind)).save_pretrained(source)
    saved = {}
    losses = {}
    for way, options in {"memory": [], "files": ["--page-weights", ".", "--page-optimizer", "."]}.items():
        done, losses[way] = train(directory, source.name, "--lora", 2, "--save-hf", f"{kind}-{way}", *options, out=way)
        assert done.returncode == 0, done.stderr
        saved[way] = safetensors.torch.load_file(directory / f"{kind}-{way}" / "model.safetensors")
    assert losses["files"] == losses["memory"]
    for name, tensor in saved["memory"].items():
        assert torch.equal(saved["files"][name], tensor), name


def test_a_checkpoint_continues_with_the_same_bits(directory):
    _, whole = train(directory, "gpt2", "--budget", "60%", out="whole")
    first, _ = train(directory, "gpt2", "--steps", 2, "--checkpoint", "run.ckpt", out="first")
    assert first.returncode == 0, first.stderr
    second, rest = train(directory, "gpt2", "--budget", "60%", "--checkpoint", "run.ckpt", "--resume", out="second")
    assert second.returncode == 0, second.stderr
    assert rest == whole[2:]


def test_a_checkpoint_continues_where_the_models_directory_has_another_name(directory, tmp_path):
    first, whole = train(directory, "gpt2", "--steps", 3, "--checkpoint", "moved.ckpt", out="first")
    assert first.returncode == 0, first.stderr
    shutil.copy(directory / "moved.ckpt", directory / "other.ckpt")
    shutil.copytree(directory / "gpt2", tmp_path / "elsewhere")
    second, rest = train(directory, tmp_path / "elsewhere", "--checkpoint", "moved.ckpt", "--resume", out="second")
    assert second.returncode == 0, second.stderr
    assert len(rest) == 1 and rest != whole[-1:]
    config = tmp_path / "elsewhere" / "config.json"
    config.write_text(config.read_text().replace('"layer_norm_epsilon": 1e-05', '"layer_norm_epsilon": 1e-06'))
    other, _ = train(directory, tmp_path / "elsewhere", "--checkpoint", "other.ckpt", "--resume", out="other")
    assert other.returncode == 1 and "was trained from another model, that of " in other.stderr, other.stderr


def test_weights_that_are_not_finite_are_named_and_not_the_learning_rate(directory, tmp_path):
    shutil.copytree(directory / "gpt2", tmp_path / "damaged")
    file = tmp_path / "damaged" / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    tensors["transformer.wte.weight"][0, 0] = float("nan")
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    done, _ = train(directory, tmp_path / "damaged", out="damaged")
    assert done.returncode == 1 and "'transformer.wte.weight' (1 of " in done.stderr, done.stderr
    assert "--lr" not in done.stderr


def test_a_text_that_is_not_learnt_from_judges_the_training(directory):
    (directory / "other").write_text(TEXT[::-1])
    seen, _ = train(directory, "llama", "--budget", "80%", "--lr", 1e-2, "--eval", "text", "--warmup", 2, "--clip", 1,
                    "--schedule", "cosine", out="seen")
    assert seen.returncode == 0, seen.stderr
    evaluation = json.loads((directory / "seen.json").read_text())["evaluation"]
    assert evaluation["after"] < evaluation["before"]
    assert "text: loss" in seen.stdout and "perplexity" in seen.stdout
    _, without = train(directory, "llama", "--budget", "80%", "--lr", 1e-2, "--warmup", 2, "--clip", 1,
                       "--schedule", "cosine", out="without")
    _, judged = train(directory, "llama", "--budget", "80%", "--lr", 1e-2, "--warmup", 2, "--clip", 1,
                      "--schedule", "cosine", "--eval", "other", out="judged")
    assert without == judged, "evaluation changes no bit"


def test_micro_batches_and_half_precision(directory):
    _, whole = train(directory, "llama", out="one")
    _, parts = train(directory, "llama", "--accumulate", 4, out="accumulate")
    _, within = train(directory, "llama", "--accumulate", 4, "--budget", "90%", out="accumulate-within")
    assert parts == within and len(parts) == 4 and parts != whole
    _, half = train(directory, "llama", "--precision", "bf16", out="half")
    _, half_within = train(directory, "llama", "--precision", "bf16", "--budget", "90%", out="half-within")
    assert half == half_within and len(half) == 4 and half != whole


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_processes_share_a_model_from_a_directory(directory, name):
    def together(out, *words):
        return train(directory, name, "--ranks", 2, "--dropout", 0, "--eval", "text", "--save-hf", f"{name}-{out}",
                     *words, out=out)

    copies, losses = together("copies")
    if "built without" in copies.stderr:
        pytest.skip("this build has no --ranks")
    assert copies.returncode == 0, copies.stderr
    plain, plain_losses = together("plain-shards", "--shard", "--plain")
    shards, same = together("shards", "--shard", "--budget", "90%")
    assert shards.returncode == 0, shards.stderr
    assert losses[:1] == same[:1] and same == plain_losses and len(same) == 4
    weights = {out: transformers.AutoModelForCausalLM.from_pretrained(directory / f"{name}-{out}").state_dict()
               for out in ("copies", "plain-shards", "shards")}
    before = transformers.AutoModelForCausalLM.from_pretrained(directory / name).state_dict()
    for key, tensor in weights["shards"].items():
        assert torch.equal(tensor, weights["plain-shards"][key]), key
        assert torch.allclose(tensor, weights["copies"][key], atol=1e-3), key
    assert any(not torch.equal(tensor, before[key]) for key, tensor in weights["shards"].items())


@pytest.mark.parametrize("words, message", [
    (["--seq", "65"], "knows 64 positions, --seq is 65; lower it"),
    (["--layers", "3"], "--layers has no effect with --hf"),
    (["--accumulate", "7"], "--accumulate 7 is more than --batch 6"),
    (["--save-hf", "gpt2"], "is where the model comes from"),
    (["--save-hf", "text"], "cannot be a directory"),
    (["--hf", "nowhere"], "cannot read 'nowhere/config.json'"),
    (["--budget", "1MiB"], "parameters, which need"),
])
def test_what_cannot_be_is_refused_before_training(directory, words, message):
    done, _ = train(directory, "gpt2", *words, out="refused")
    assert done.returncode in (1, 2, 3) and message in done.stderr, done.stderr
    assert done.stderr.startswith("remat: [") and done.stderr.count("\n") == 1


def test_a_training_that_is_finished_is_saved_and_judged_when_it_is_resumed(directory):
    first, _ = train(directory, "gpt2", "--checkpoint", "done.ckpt", out="done")
    assert first.returncode == 0, first.stderr
    again, steps = train(directory, "gpt2", "--checkpoint", "done.ckpt", "--resume", "--save-hf", "done-hf", "--eval",
                         "text", out="done-again")
    assert again.returncode == 0, again.stderr
    assert steps == [] and "perplexity" in again.stdout
    transformers.AutoModelForCausalLM.from_pretrained(directory / "done-hf")


def test_a_save_that_fails_keeps_the_training(directory, tmp_path):
    (tmp_path / "to" / "config.json").mkdir(parents=True)
    done = subprocess.run([COMMAND, "train", "--hf", directory / "gpt2", "--data", directory / "text", *TRAIN,
                           "--save-hf", "to"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and "it is a directory" in done.stderr, done.stderr
    assert "--checkpoint remat-interrupted.ckpt --resume" in done.stdout, done.stdout
    (tmp_path / "to" / "config.json").rmdir()
    words = done.stdout.splitlines()[-1].split()
    again = subprocess.run([COMMAND, *words[1:]], capture_output=True, text=True, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "to" / "model.safetensors").exists()


def test_a_signal_in_the_last_evaluation_keeps_the_training(directory, tmp_path):
    command = [COMMAND, "train", "--hf", directory / "gpt2", "--data", directory / "text", "--steps", "2", "--seq",
               "48", "--batch", "2", "--eval", directory / "text", "--save-hf", "to"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    seen = b""
    while b"1/2" not in seen:
        piece = os.read(process.stdout.fileno(), 4096)
        assert piece, process.stderr.read()
        seen += piece
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == 130 and b"--checkpoint remat-interrupted.ckpt --resume" in seen + out, seen + out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["remat-interrupted.ckpt"]


@pytest.mark.parametrize("words", [["--json", "gpt2/config.json"], ["--checkpoint", "gpt2/model.safetensors"],
                                   ["--save-hf", "fresh", "--json", "fresh/tokenizer.json"]])
def test_results_in_the_place_of_the_models_files_are_refused(directory, words):
    before = (directory / "gpt2" / "config.json").read_bytes()
    done = subprocess.run([COMMAND, "train", "--hf", "gpt2", "--data", "text", *TRAIN, *words], capture_output=True,
                          text=True, cwd=directory)
    assert done.returncode == 2 and "is a file of the model's directory" in done.stderr, done.stderr
    assert (directory / "gpt2" / "config.json").read_bytes() == before


def test_a_refused_training_leaves_no_directory(directory):
    done, _ = train(directory, "gpt2", "--save-hf", "empty/within", "--seq", 65, out="refused")
    assert done.returncode == 1 and not (directory / "empty").exists()

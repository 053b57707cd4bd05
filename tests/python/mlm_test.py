"""`remat train --task mlm`: a BERT that transformers wrote learns to tell hidden tokens, and is read back."""

import json
import os
import shutil
import subprocess

import pytest
import torch

from batches import TEXT, WORDS, masked_batch

transformers = pytest.importorskip("transformers")
COMMAND = os.environ.get("REMAT_COMMAND")
if not COMMAND:
    pytest.skip("REMAT_COMMAND names no command: run these by ctest", allow_module_level=True)

SEQ = 24
TRAIN = ["--steps", "4", "--batch", "6", "--seq", str(SEQ), "--lr", "3e-3"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("mlm")
    (path / "text").write_text(TEXT)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (path / "vocab.txt").write_text("\n".join(tokens))
    tokenizer = transformers.BertTokenizerFast(str(path / "vocab.txt"))
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(tokens), hidden_size=32, intermediate_size=64, num_hidden_layers=4,
                                     num_attention_heads=4, max_position_embeddings=32, initializer_range=0.2)
    transformers.BertForMaskedLM(config).save_pretrained(path / "bert")
    tokenizer.save_pretrained(path / "bert")
    return path


def train(directory, *words, out, model="bert"):
    result = directory / f"{out}.json"
    done = subprocess.run([COMMAND, "train", "--task", "mlm", "--hf", directory / model, "--data", directory / "text",
                           *TRAIN, "--json", result, *map(str, words)], capture_output=True, text=True, cwd=directory)
    steps = json.loads(result.read_text())["steps"] if done.returncode == 0 else []
    return done, [step["loss_bits"] for step in steps]


def test_losses_are_those_of_transformers(directory):
    done, _ = train(directory, "--dropout", 0, "--steps", 1, "--seed", 3, out="one")
    assert done.returncode == 0, done.stderr
    loss = json.loads((directory / "one.json").read_text())["steps"][0]["loss"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory / "bert")
    model = transformers.BertForMaskedLM.from_pretrained(directory / "bert", attn_implementation="eager").eval()
    inputs, targets = masked_batch(tokenizer(TEXT, add_special_tokens=False)["input_ids"], SEQ, 1, 6, 3, tokenizer)
    assert loss == pytest.approx(model(input_ids=inputs, labels=targets).loss.item(), rel=1e-5)


def test_a_budget_changes_no_bit_and_transformers_loads_the_result(directory):
    plain, losses = train(directory, "--plain", "--save-hf", "plain", out="plain")
    assert plain.returncode == 0, plain.stderr
    within, same = train(directory, "--budget", "60%", "--save-hf", "within", out="within")
    assert within.returncode == 0, within.stderr
    assert losses == same and len(set(losses)) == 4
    saved = [transformers.AutoModelForMaskedLM.from_pretrained(directory / how) for how in ("plain", "within")]
    for key, tensor in saved[0].state_dict().items():
        assert torch.equal(tensor, saved[1].state_dict()[key]), key
    assert json.loads((directory / "within" / "config.json").read_text())["architectures"] == ["BertForMaskedLM"]


def test_micro_batches_give_the_loss_of_their_batch(directory):
    def losses(*words, out):
        done, bits = train(directory, "--dropout", 0, *words, out=out)
        assert done.returncode == 0, done.stderr
        return bits, [step["loss"] for step in json.loads((directory / f"{out}.json").read_text())["steps"]]

    _, whole = losses(out="whole")
    bits, parts = losses("--accumulate", 4, out="parts")  # of 2, 2 and 2 examples
    same, _ = losses("--accumulate", 4, "--budget", "90%", out="parts-within")
    assert parts == pytest.approx(whole, rel=1e-4)
    assert bits == same


def test_what_is_learnt_shows_on_a_text_that_was_not(directory):
    (directory / "other").write_text(" ".join(WORDS[i * i % 89 % len(WORDS)] for i in range(800)))
    seen, _ = train(directory, "--steps", 60, "--budget", "80%", "--eval", "other", out="seen")
    assert seen.returncode == 0, seen.stderr
    evaluation = json.loads((directory / "seen.json").read_text())["evaluation"]
    assert evaluation["after"] < evaluation["before"] - 0.5
    assert "other: loss" in seen.stdout and "perplexity" in seen.stdout


def test_a_checkpoint_continues_with_the_same_bits(directory):
    _, whole = train(directory, "--budget", "60%", out="uninterrupted")
    first, _ = train(directory, "--steps", 2, "--checkpoint", "run.ckpt", out="first")
    assert first.returncode == 0, first.stderr
    second, rest = train(directory, "--budget", "60%", "--checkpoint", "run.ckpt", "--resume", out="second")
    assert second.returncode == 0, second.stderr
    assert rest == whole[2:]


def test_processes_share_every_batch(directory):
    alone, losses = train(directory, "--dropout", 0, out="alone")
    both, shared = train(directory, "--dropout", 0, "--ranks", 2, out="both")
    if "built without" in both.stderr:
        pytest.skip("this build has no --ranks")
    assert both.returncode == 0, both.stderr
    first = [json.loads((directory / f"{out}.json").read_text())["steps"][0]["loss"] for out in ("alone", "both")]
    assert first[0] == pytest.approx(first[1], rel=1e-5)


def test_models_and_tokenizers_of_another_kind_are_refused(directory):
    config = transformers.GPT2Config(vocab_size=30, n_embd=16, n_layer=1, n_head=2, n_positions=32)
    transformers.GPT2LMHeadModel(config).save_pretrained(directory / "gpt2")
    gpt, _ = train(directory, model="gpt2", out="gpt2")
    assert gpt.returncode != 0
    assert "describes a gpt2, which remat trains for the task next-token, not mlm" in gpt.stderr
    causal = subprocess.run([COMMAND, "train", "--hf", directory / "bert", "--data", directory / "text"],
                            capture_output=True, text=True)
    assert "describes a bert, which remat trains for the task mlm or classify, not next-token" in causal.stderr
    without = subprocess.run([COMMAND, "train", "--task", "mlm", "--data", directory / "text"],
                             capture_output=True, text=True)
    assert without.returncode != 0 and "--task mlm needs a model that sees both sides" in without.stderr
    short, _ = train(directory, "--seq", 2, out="short")
    assert "--seq 2 has no room for a token between [CLS] and [SEP]" in short.stderr
    shutil.copytree(directory / "bert", directory / "bert-unmasked")
    configuration = directory / "bert-unmasked" / "tokenizer_config.json"
    configuration.write_text(json.dumps(json.loads(configuration.read_text()) | {"mask_token": None}))
    unmasked, _ = train(directory, model="bert-unmasked", out="unmasked")
    assert "no [CLS], [SEP] or [MASK], which --task mlm needs" in unmasked.stderr

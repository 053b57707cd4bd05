"""`remat train --lora`: factors that the command trains, against those of peft on transformers' models."""

import csv
import json
import os
import shutil
import subprocess

import pytest
import torch
from safetensors.torch import load_file

from batches import TEXT, WORDS, masked_batch, next_token_batch

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
peft = pytest.importorskip("peft")
COMMAND = os.environ.get("REMAT_COMMAND")
if not COMMAND:
    pytest.skip("REMAT_COMMAND names no command: run these by ctest", allow_module_level=True)

SEQ, ROWS, STEPS, LR = 24, 6, 4, 1e-2
SIZES = dict(num_hidden_layers=4, num_attention_heads=4, intermediate_size=64, hidden_size=32)
TASKS = {"gpt2": "next-token", "llama": "next-token", "masked": "mlm", "labels": "classify"}
CLASSES = {"gpt2": transformers.AutoModelForCausalLM, "llama": transformers.AutoModelForCausalLM,
           "masked": transformers.AutoModelForMaskedLM, "labels": transformers.AutoModelForSequenceClassification}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("lora")
    (path / "text").write_text(TEXT)
    with open(path / "train.csv", "w", newline="") as file:
        rows = [(" ".join(WORDS[(i * j + 1) % len(WORDS)] for j in range(5 + i)), "ab"[i % 2]) for i in range(ROWS)]
        csv.writer(file).writerows([("text", "label"), *rows])
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (path / "vocab.txt").write_text("\n".join(tokens))
    pieces = transformers.BertTokenizerFast(str(path / "vocab.txt"))
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator([TEXT], vocab_size=300, special_tokens=["<|endoftext|>"])
    bytes_ = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, eos_token="<|endoftext|>")
    torch.manual_seed(0)
    bert = transformers.BertConfig(vocab_size=len(tokens), max_position_embeddings=32, initializer_range=0.2, **SIZES)
    models = {
        "gpt2": (bytes_, transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=len(bytes_), n_embd=32, n_layer=4, n_head=4, n_positions=32, initializer_range=0.1))),
        "llama": (bytes_, transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=len(bytes_), num_key_value_heads=2, initializer_range=0.1, **SIZES))),
        "masked": (pieces, transformers.BertForMaskedLM(bert)),
        "labels": (pieces, transformers.BertForSequenceClassification(bert)),
        "headless": (pieces, transformers.BertModel(bert, add_pooling_layer=False)),
    }
    for name, (tokenizer, model) in models.items():
        model.save_pretrained(path / name)
        tokenizer.save_pretrained(path / name)
    return path


def train(directory, name, *words, out, task=None):
    result = directory / f"{out}.json"
    task = task or TASKS[name]
    data = "train.csv" if task == "classify" else "text"
    done = subprocess.run([COMMAND, "train", "--task", task, "--hf", name, "--data", data, "--steps", str(STEPS),
                           "--batch", str(ROWS), "--seq", str(SEQ), "--lr", str(LR), "--lora", "4", "--json", result,
                           *map(str, words)], capture_output=True, text=True, cwd=directory)
    steps = json.loads(result.read_text())["steps"] if done.returncode == 0 else []
    return done, [step["loss_bits"] for step in steps]


def losses_of(directory, out):
    return [step["loss"] for step in json.loads((directory / f"{out}.json").read_text())["steps"]]


def batch(directory, name, step):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory / name)
    if name == "labels":
        with open(directory / "train.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        inputs = tokenizer([row["text"] for row in rows], padding=True, truncation=True, max_length=SEQ,
                           return_tensors="pt")
        return dict(inputs), torch.tensor(["ab".index(row["label"]) for row in rows])
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    if name == "masked":
        inputs, targets = masked_batch(ids, SEQ, step, ROWS, 0, tokenizer)
    else:
        inputs, targets = next_token_batch(ids, SEQ, step, ROWS, 0)
    return dict(input_ids=inputs), targets


def train_with_peft(directory, name, adapter):
    """As many steps from the factors that the command begins with."""
    base = CLASSES[name].from_pretrained(directory / name, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(base, directory / adapter, is_trainable=True).eval()  # without dropout
    trained = {key: tensor for key, tensor in model.named_parameters() if tensor.requires_grad}
    with torch.no_grad():
        for key, tensor in trained.items():
            if "lora_B" in key:
                tensor.zero_()
    optimizer = torch.optim.AdamW(trained.values(), lr=LR, weight_decay=0.01)
    losses = []
    for step in range(1, STEPS + 1):
        inputs, targets = batch(directory, name, step)
        loss = torch.nn.functional.cross_entropy(model(**inputs).logits.flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return model, losses


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("words", [[], ["--lora-alpha", "10", "--lora-targets", "*"]], ids=["usual", "all layers"])
def test_training_is_that_of_peft(directory, name, words):
    out = f"{name}-{len(words)}"
    first, _ = train(directory, name, "--steps", 1, "--lr", 1e-12, "--dropout", 0, "--save-adapter", f"{out}-start",
                     *words, out="start")
    assert first.returncode == 0, first.stderr
    done, _ = train(directory, name, "--dropout", 0, "--save-adapter", f"{out}-end", "--save-hf", f"{out}-merged",
                    *words, out=out)
    assert done.returncode == 0, done.stderr
    theirs, losses = train_with_peft(directory, name, f"{out}-start")
    ours = losses_of(directory, out)
    assert abs(losses[-1] - losses[0]) > 1e-3
    assert ours == pytest.approx(losses, rel=1e-4)

    base = CLASSES[name].from_pretrained(directory / name)
    adapted = peft.PeftModel.from_pretrained(base, directory / f"{out}-end").eval()
    merged = CLASSES[name].from_pretrained(directory / f"{out}-merged").eval()
    inputs, _ = batch(directory, name, 1)
    with torch.no_grad():
        logits = merged(**inputs).logits
        torch.testing.assert_close(adapted(**inputs).logits, logits, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(theirs(**inputs).logits, logits, rtol=1e-2, atol=1e-2)
        assert not torch.allclose(CLASSES[name].from_pretrained(directory / name).eval()(**inputs).logits, logits,
                                  rtol=1e-2, atol=1e-2)


WAYS = [*((name,) for name in TASKS), ("gpt2", "--accumulate", "3"), ("labels", "--accumulate", "3"),
        ("llama", "--optimizer-in-backward"), ("masked", "--optimizer-in-backward"), ("llama", "--precision", "bf16"),
        ("labels", "--precision", "bf16")]


@pytest.mark.parametrize("name, words", [(name, words) for name, *words in WAYS], ids=map("-".join, WAYS))
def test_a_budget_changes_no_bit(directory, name, words):
    plain, losses = train(directory, name, "--plain", "--save-adapter", "plain", *words, out="plain")
    assert plain.returncode == 0, plain.stderr
    within, same = train(directory, name, "--budget", "60%" if words else "40%", "--save-adapter", "within", *words,
                         out="within")
    assert within.returncode == 0, within.stderr
    assert losses == same and len(set(losses)) == STEPS
    tensors, others = (load_file(directory / how / "adapter_model.safetensors") for how in ("plain", "within"))
    assert tensors.keys() == others.keys()
    for key, tensor in tensors.items():
        assert torch.equal(tensor, others[key]), key


def test_updates_in_backward_are_those_after_it(directory):
    _, after = train(directory, "llama", out="after")
    _, within = train(directory, "llama", "--optimizer-in-backward", out="in-backward")
    assert after == within and len(after) == STEPS


def test_the_frozen_weights_stay_as_they_are(directory):
    done, _ = train(directory, "llama", "--save-hf", "llama-merged", out="merged")
    assert done.returncode == 0, done.stderr
    before, after = (load_file(directory / how / "model.safetensors") for how in ("llama", "llama-merged"))
    changed = {key for key, tensor in before.items() if not torch.equal(tensor, after[key])}
    assert changed == {f"model.layers.{i}.self_attn.{kind}_proj.weight" for i in range(4) for kind in "qv"}


def test_a_checkpoint_has_what_is_trained_and_continues_with_the_same_bits(directory):
    _, whole = train(directory, "gpt2", "--budget", "60%", out="whole")
    first, _ = train(directory, "gpt2", "--steps", 2, "--checkpoint", "run.ckpt", out="first")
    assert first.returncode == 0, first.stderr
    factors = 4 * 4 * (32 + 96)
    assert 3 * 4 * factors < (directory / "run.ckpt").stat().st_size < 3 * 4 * factors + 40_000  # names, generator
    second, rest = train(directory, "gpt2", "--budget", "60%", "--checkpoint", "run.ckpt", "--resume", out="second")
    assert second.returncode == 0, second.stderr
    assert rest == whole[2:]


@pytest.mark.parametrize("words, message", [
    (["--lora", 3], "lora 4 (here 3)"),
    (["--lora-alpha", 3], "lora-alpha 4.0 (here 3.0)"),
    (["--lora-targets", "c_fc"], 'lora-targets left out (here "c_fc")'),
])
def test_a_checkpoint_of_other_factors_is_refused(directory, words, message):
    if not (directory / "other.ckpt").exists():
        first, _ = train(directory, "gpt2", "--steps", 2, "--checkpoint", "other.ckpt", out="first")
        assert first.returncode == 0, first.stderr
    done, _ = train(directory, "gpt2", "--checkpoint", "other.ckpt", "--resume", *words, out="refused")
    assert done.returncode == 1 and f"is of another training: {message}" in done.stderr, done.stderr


def test_a_checkpoint_is_not_continued_beside_other_weights(directory):
    shutil.copytree(directory / "gpt2", directory / "moved")
    first, _ = train(directory, "moved", "--steps", 2, "--checkpoint", "moved.ckpt", out="first", task="next-token")
    assert first.returncode == 0, first.stderr
    model = transformers.AutoModelForCausalLM.from_pretrained(directory / "moved")
    with torch.no_grad():
        model.transformer.h[2].mlp.c_fc.bias.add_(1e-3)
    model.save_pretrained(directory / "moved")
    done, _ = train(directory, "moved", "--checkpoint", "moved.ckpt", "--resume", out="refused", task="next-token")
    assert done.returncode == 1 and "was trained from another model" in done.stderr, done.stderr


def test_a_new_head_is_trained_whole(directory):
    done, _ = train(directory, "headless", "--save-hf", "headed", "--save-adapter", "head", out="headless",
                    task="classify")
    assert done.returncode == 0, done.stderr
    names = {key for key in load_file(directory / "head" / "adapter_model.safetensors") if "lora" not in key}
    assert names == {f"base_model.model.{module}.{leaf}" for module in ("classifier", "bert.pooler.dense")
                     for leaf in ("weight", "bias")}
    base = transformers.AutoModelForSequenceClassification.from_pretrained(directory / "headless", num_labels=2)
    adapted = peft.PeftModel.from_pretrained(base, directory / "head").eval()
    merged = transformers.AutoModelForSequenceClassification.from_pretrained(directory / "headed").eval()
    inputs, _ = batch(directory, "labels", 1)
    torch.testing.assert_close(adapted(**inputs).logits, merged(**inputs).logits, rtol=1e-4, atol=1e-5)
    masked, _ = train(directory, "headless", "--save-adapter", "nowhere", out="refused", task="mlm")
    assert masked.returncode == 1 and "and peft has no place for it; save the merged model" in masked.stderr
    merged, _ = train(directory, "headless", "--save-hf", "predicting", out="predicting", task="mlm")
    assert merged.returncode == 0, merged.stderr
    transformers.AutoModelForMaskedLM.from_pretrained(directory / "predicting")


def test_processes_share_every_batch(directory):
    alone, _ = train(directory, "llama", out="alone")
    for out, way in (("both", []), ("shards", ["--shard"])):
        both, _ = train(directory, "llama", "--ranks", 2, *way, "--budget", "90%", out=out)
        if "built without" in both.stderr:
            pytest.skip("this build has no --ranks")
        assert both.returncode == 0, both.stderr
        assert losses_of(directory, out) == pytest.approx(losses_of(directory, "alone"), rel=1e-4)


def test_the_command_compares_both(directory):
    done = subprocess.run([COMMAND, "compare", "--hf", "llama", "--lora", "2", "--data", "text", "--steps", "4", "--seq",
                           "24", "--budget", "60%"], capture_output=True, text=True, cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "896 gradients and 896 parameters" in done.stdout and "bit-identical: yes" in done.stdout


@pytest.mark.parametrize("words, message", [
    (["--lora", 0], "--lora: '0' is not a number from 1 to 65536"),
    (["--lora", 33], "the rank is 33, and layer 'transformer.h.0.attn.c_attn' is 32 x 96; give 32 or less"),
    (["--lora-targets", "q_proj"], "no linear layer fits 'q_proj'; there are transformer.h.*.attn.c_attn, "
                                   "transformer.h.*.attn.c_proj, transformer.h.*.mlp.c_fc, transformer.h.*.mlp.c_proj"),
    (["--lora-targets", "c_attn,,c_fc"], "no linear layer fits ''"),
    (["--save-adapter", "gpt2"], "is where the model comes from"),
    (["--save-adapter", "llama"], "'llama' holds config.json"),
    (["--save-adapter", "out", "--save-hf", "out/"], "--save-hf and --save-adapter are the same"),
    (["--save-adapter", "out", "--json", "out/adapter_config.json"], "is a file of the model's directory"),
])
def test_what_cannot_be_is_refused_before_training(directory, words, message):
    done, _ = train(directory, "gpt2", *words, out="refused")
    assert done.returncode in (1, 2) and message in done.stderr, done.stderr
    assert done.stderr.startswith("remat: [") and done.stderr.count("\n") == 1
    assert not (directory / "out").exists()


@pytest.mark.parametrize("option", ["--lora-alpha=4", "--lora-targets=c_attn", "--save-adapter=out"])
def test_options_of_factors_need_factors(directory, option):
    done = subprocess.run([COMMAND, "train", "--hf", "gpt2", "--data", "text", option], capture_output=True, text=True,
                          cwd=directory)
    assert done.returncode == 2 and f"{option.split('=')[0]} has no effect without --lora" in done.stderr, done.stderr


def test_a_new_model_may_have_factors_where_it_has_layers_for_them(directory):
    command = [COMMAND, "train", "--data", "text", "--lora", "2", "--steps", "2", "--seq", "16", "--layers", "2",
               "--width", "16", "--heads", "2"]
    gpt = subprocess.run(command, capture_output=True, text=True, cwd=directory)
    assert gpt.returncode == 0 and "LoRA of rank 2 trains 256 of them" in gpt.stdout, gpt.stdout + gpt.stderr
    mlp = subprocess.run([*command[:-2], "--model", "mlp"], capture_output=True, text=True, cwd=directory)
    assert mlp.returncode == 1 and "no layers of queries and values; name others: there are hidden.linear*" in mlp.stderr


def test_a_model_is_not_saved_where_an_adapter_is(directory):
    done, _ = train(directory, "gpt2", "--save-adapter", "adapter", out="adapter")
    assert done.returncode == 0, done.stderr
    done, _ = train(directory, "gpt2", "--save-hf", "adapter", out="refused")
    assert done.returncode == 1 and "'adapter' holds adapter_config.json" in done.stderr, done.stderr

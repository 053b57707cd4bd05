"""`remat train --task classify`: a BERT that transformers wrote, trained by the command on labelled texts, and read back."""

import csv
import json
import os
import random
import subprocess

import pytest
import torch
from safetensors.torch import load_file

transformers = pytest.importorskip("transformers")
COMMAND = os.environ.get("REMAT_COMMAND")
if not COMMAND:
    pytest.skip("REMAT_COMMAND names no command: run these by ctest", allow_module_level=True)

WORDS = {"Old": ["moses", "altar", "king", "sacrifice", "tabernacle", "philistines"],
         "New": ["jesus", "disciples", "gospel", "church", "faith", "apostle"]}
COMMON = ["and", "the", "lord", "said", "unto", "them", "of", ",", '"']
TRAIN = ["--steps", "8", "--batch", "8", "--seq", "16", "--lr", "3e-3"]
BERT = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4,
            max_position_embeddings=32, initializer_range=0.2)


def verses(count, seed):
    """Of two testaments, which every fourth word or so tells apart."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        label = rng.choice(sorted(WORDS))
        words = rng.choices(COMMON * 2 + WORDS[label], k=rng.randrange(2, 30)) + [rng.choice(WORDS[label])]
        rows.append((" ".join(words), label))
    return rows


def write_csv(path, rows, header=("text", "label")):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(dict(text=text, label=label)) + "\n" for text, label in rows))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("classify")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *COMMON, *WORDS["Old"], *WORDS["New"]]
    (path / "vocab.txt").write_text("\n".join(tokens))
    tokenizer = transformers.BertTokenizerFast(str(path / "vocab.txt"))
    torch.manual_seed(0)
    models = {"base": transformers.BertModel(transformers.BertConfig(vocab_size=len(tokens), **BERT)),
              "three": transformers.BertForSequenceClassification(
                  transformers.BertConfig(vocab_size=len(tokens), num_labels=3, **BERT)),
              "named": transformers.BertForSequenceClassification(transformers.BertConfig(
                  vocab_size=len(tokens), id2label={0: "Old", 1: "New"}, label2id={"Old": 0, "New": 1}, **BERT))}
    for name, model in models.items():
        model.save_pretrained(path / name)
        tokenizer.save_pretrained(path / name)
    rows = verses(200, seed=1)
    write_csv(path / "train.csv", rows)
    write_jsonl(path / "train.jsonl", rows)
    write_csv(path / "test.csv", verses(60, seed=2))
    return path


def train(directory, name, *words, out, data="train.csv"):
    result = directory / f"{out}.json"
    done = subprocess.run([COMMAND, "train", "--task", "classify", "--hf", name, "--data", data, *TRAIN,
                           "--json", result, *map(str, words)], capture_output=True, text=True, cwd=directory)
    report = json.loads(result.read_text()) if done.returncode == 0 else {"steps": []}
    return done, report, [step["loss_bits"] for step in report["steps"]]


def predict(directory, model, rows):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory / model)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(directory / model).eval()
    inputs = tokenizer([text for text, _ in rows], padding=True, truncation=True, max_length=16, return_tensors="pt")
    with torch.no_grad():
        logits = model(**inputs).logits
    return logits, [model.config.id2label[int(i)] for i in logits.argmax(-1)]


def test_learns_and_transformers_predicts_the_same(directory):
    done, report, _ = train(directory, "base", "--steps", 120, "--batch", 16, "--lr", 1e-3, "--warmup", 10,
                            "--eval", "test.csv", "--save-hf", "tuned", out="learnt")
    assert done.returncode == 0, done.stderr
    evaluation = report["evaluation"]
    assert evaluation["accuracy"]["before"] < 0.8 and evaluation["accuracy"]["after"] > 0.9, evaluation
    assert evaluation["after"] < evaluation["before"]
    assert "test.csv: loss" in done.stdout and "accuracy" in done.stdout and "examples per second" in done.stdout

    rows = verses(60, seed=2)
    logits, labels = predict(directory, "tuned", rows)
    right = sum(label == row[1] for label, row in zip(labels, rows))
    assert evaluation["accuracy"]["after"] == right / len(rows)
    names = ["New", "Old"]
    targets = torch.tensor([names.index(label) for _, label in rows])
    loss = torch.nn.functional.cross_entropy(logits, targets).item()
    assert evaluation["after"] == pytest.approx(loss, rel=1e-3, abs=1e-6)
    config = json.loads((directory / "tuned" / "config.json").read_text())
    assert config["id2label"] == {"0": "New", "1": "Old"} and config["label2id"] == {"New": 0, "Old": 1}


@pytest.mark.parametrize("words", [[], ["--accumulate", "3"], ["--precision", "bf16"]])
def test_a_budget_changes_no_bit(directory, words):
    plain, _, losses = train(directory, "base", "--plain", "--save-hf", "plain", *words, out="plain")
    assert plain.returncode == 0, plain.stderr
    within, _, same = train(directory, "base", "--budget", "50%", "--save-hf", "within", *words, out="within")
    assert within.returncode == 0, within.stderr
    assert losses == same and len(set(losses)) == 8
    tensors, others = (load_file(directory / name / "model.safetensors") for name in ("plain", "within"))
    assert tensors.keys() == others.keys()
    for key, tensor in tensors.items():
        assert torch.equal(tensor, others[key]), key


def test_the_command_compares_both(directory):
    done = subprocess.run([COMMAND, "compare", "--task", "classify", "--hf", "base", "--data", "train.csv", *TRAIN,
                           "--budget", "80%"], capture_output=True, text=True, cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 texts of at most 16 tokens of train.csv" in done.stdout and "bit-identical: yes" in done.stdout


def test_a_checkpoint_continues_with_the_same_bits(directory):
    _, _, whole = train(directory, "base", "--steps", 30, out="whole")
    first, _, _ = train(directory, "base", "--steps", 13, "--checkpoint", "run.ckpt", out="first")
    assert first.returncode == 0, first.stderr
    second, _, rest = train(directory, "base", "--steps", 30, "--budget", "60%", "--checkpoint", "run.ckpt",
                            "--resume", out="second")
    assert second.returncode == 0, second.stderr
    assert rest == whole[13:] and len(rest) == 17, "30 steps of 8 are more than one epoch of 200"
    other, _, _ = train(directory, "base", "--steps", 40, "--checkpoint", "run.ckpt", "--resume", out="other",
                        data="train.jsonl")
    assert other.returncode == 1 and "was trained on another" in other.stderr


def test_both_forms_of_files_and_other_columns_are_the_same(directory):
    rows = verses(200, seed=1)
    with open(directory / "other.csv", "w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("id", "class", "verse"),
                                                           *((i, label, text) for i, (text, label) in enumerate(rows))])
    _, _, comma = train(directory, "base", out="comma")
    _, _, lines = train(directory, "base", out="lines", data="train.jsonl")
    done, _, other = train(directory, "base", "--text-column", "verse", "--label-column", "class", out="columns",
                           data="other.csv")
    assert done.returncode == 0, done.stderr
    assert comma == lines == other and len(comma) == 8


def test_labels_of_the_configuration_keep_their_numbers(directory):
    done, _, losses = train(directory, "named", "--save-hf", "named-tuned", out="named")
    assert done.returncode == 0, done.stderr
    numbered = [(text, ["Old", "New"].index(label)) for text, label in verses(200, seed=1)]
    write_jsonl(directory / "numbered.jsonl", numbered)
    _, _, same = train(directory, "named", out="numbered", data="numbered.jsonl")
    assert losses == same and len(losses) == 8
    config = json.loads((directory / "named-tuned" / "config.json").read_text())
    assert config["id2label"] == {"0": "Old", "1": "New"}


def test_a_first_step_has_the_loss_of_transformers(directory):
    write_csv(directory / "few.csv", verses(6, seed=3))
    _, report, _ = train(directory, "named", "--batch", 6, "--steps", 1, "--dropout", 0, out="few", data="few.csv")
    rows = verses(6, seed=3)
    logits, _ = predict(directory, "named", rows)
    targets = torch.tensor([["Old", "New"].index(label) for _, label in rows])
    loss = torch.nn.functional.cross_entropy(logits, targets).item()
    assert report["steps"][0]["loss"] == pytest.approx(loss, rel=1e-5)


def test_processes_share_a_batch(directory):
    one, _, _ = train(directory, "named", "--dropout", 0, out="alone")
    assert one.returncode == 0, one.stderr
    two, report, _ = train(directory, "named", "--ranks", 2, "--dropout", 0, "--budget", "90%", out="two")
    if "built without" in two.stderr:
        pytest.skip("this build has no --ranks")
    assert two.returncode == 0, two.stderr
    alone = json.loads((directory / "alone.json").read_text())["steps"]
    for step, other in zip(alone, report["steps"]):
        assert step["loss"] == pytest.approx(other["loss"], rel=1e-3)


REFUSED = {
    "no column": ("sentence,label\na,x\nb,y\n", [], "'bad.csv' line 1: there is no column 'text'"),
    "open quote": ('text,label\na,x\n"b,y\n', [], "'bad.csv' line 3: the quote that begins here does not end"),
    "one class": ("text,label\na,x\nb,x\n", [], "'bad.csv' has the label 'x' alone"),
    "another head": ("text,label\na,x\nb,y\n", ["--hf", "three"], "has 2 labels, 'x', 'y', and the classifier"),
    "unknown label": ("text,label\na,Old\nb,Newer\n", ["--data", "train.csv", "--eval", "bad.csv"],
                      "'bad.csv' line 3: the label 'Newer' is none of the training's, 'New', 'Old'"),
    "too long": ("text,label\na,x\nb,y\n", ["--seq", "33"], "knows 32 positions, --seq is 33; lower it"),
    "too short": ("text,label\na,x\nb,y\n", ["--seq", "2"], "--seq 2 has no room"),
    "empty": ("", [], "'bad.csv' is empty"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_before_training(directory, case):
    contents, words, message = REFUSED[case]
    (directory / "bad.csv").write_text(contents)
    done, _, _ = train(directory, "base", *words, out="refused", data="bad.csv")
    assert done.returncode in (1, 2) and message in done.stderr, done.stderr
    assert done.stderr.startswith("remat: [") and done.stderr.count("\n") == 1

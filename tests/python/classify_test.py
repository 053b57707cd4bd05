"""`remat train --task classify`: a BERT that transformers wrote, trained by the command on labelled texts, and read back."""

import csv
import json
import os
import random
import shutil
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


@pytest.mark.parametrize("model", ["named", "three"])
def test_processes_may_hold_a_part_of_the_model_each(directory, model):
    data = "train.csv"
    if model == "three":
        data = "three.csv"
        write_csv(directory / data, [(text, str(i % 3)) for i, (text, _) in enumerate(verses(60, seed=4))])
    copies, _, losses = train(directory, model, "--ranks", 2, "--dropout", 0, out="copies", data=data)
    if "built without" in copies.stderr:
        pytest.skip("this build has no --ranks")
    shards, _, same = train(directory, model, "--ranks", 2, "--dropout", 0, "--shard", "--budget", "90%", out="shards",
                            data=data)
    assert shards.returncode == 0, shards.stderr
    assert losses[0] == same[0] and len(same) == 8


def test_dropout_before_the_classifier_is_that_of_the_configuration(directory):
    def losses(share):
        config = json.loads((directory / "named" / "config.json").read_text()) | {"classifier_dropout": share}
        (directory / "named-dropout").mkdir(exist_ok=True)
        for file in (directory / "named").iterdir():
            (directory / "named-dropout" / file.name).write_bytes(file.read_bytes())
        (directory / "named-dropout" / "config.json").write_text(json.dumps(config))
        return train(directory, "named-dropout", out="dropout")[2]

    assert losses(None) == losses(0.1) != losses(0.7)


@pytest.mark.parametrize("side", ["truncation_side", "padding_side"])
def test_texts_are_cut_and_padded_where_the_tokenizer_says(directory, side):
    shutil.copytree(directory / "named", directory / side)
    configuration = directory / side / "tokenizer_config.json"
    configuration.write_text(json.dumps(json.loads(configuration.read_text()) | {side: "left"}))
    assert getattr(transformers.AutoTokenizer.from_pretrained(directory / side), side) == "left"
    done, report, _ = train(directory, side, "--steps", 1, "--lr", 1e-12, "--batch", 60, "--eval", "test.csv", out=side)
    assert done.returncode == 0, done.stderr
    rows = verses(60, seed=2)
    logits, _ = predict(directory, side, rows)
    targets = torch.tensor([["Old", "New"].index(label) for _, label in rows])
    loss = torch.nn.functional.cross_entropy(logits, targets).item()
    assert report["evaluation"]["before"] == pytest.approx(loss, rel=1e-5)


def test_texts_are_cut_to_the_positions_that_the_model_knows(directory):
    _, _, known = train(directory, "named", "--seq", 32, out="known")
    done, _, more = train(directory, "named", "--seq", 128, out="more")
    assert done.returncode == 0, done.stderr
    assert known == more and len(more) == 8


def test_a_checkpoint_of_other_labels_is_refused(directory):
    write_csv(directory / "two.csv", [(text, "ab"[i % 2]) for i, (text, _) in enumerate(verses(40, seed=5))])
    first, _, _ = train(directory, "base", "--steps", 2, "--checkpoint", "labels.ckpt", out="first", data="two.csv")
    assert first.returncode == 0, first.stderr
    config = json.loads((directory / "base" / "config.json").read_text())
    try:
        renamed = config | {"id2label": {"0": "b", "1": "a"}, "label2id": {"b": 0, "a": 1}}
        (directory / "base" / "config.json").write_text(json.dumps(renamed))
        second, _, _ = train(directory, "base", "--steps", 4, "--checkpoint", "labels.ckpt", "--resume", out="second",
                             data="two.csv")
    finally:
        (directory / "base" / "config.json").write_text(json.dumps(config))
    assert second.returncode == 1 and "'labels.ckpt' was trained from another model" in second.stderr


def test_held_out_labels_may_be_numbers_of_the_training_s(directory):
    write_csv(directory / "test-numbers.csv", [(text, ["Old", "New"].index(label)) for text, label in verses(60, seed=2)])
    _, names, _ = train(directory, "named", "--eval", "test.csv", out="names")
    done, numbers, _ = train(directory, "named", "--eval", "test-numbers.csv", out="numbers")
    assert done.returncode == 0, done.stderr
    assert names["evaluation"] == numbers["evaluation"]
    assert "2 classes: 'Old', 'New'" in done.stdout


@pytest.mark.parametrize("seed", [2, 5])
def test_a_step_that_outgrows_a_percentage_is_measured_anew(directory, seed):
    """Texts of other lengths in every batch: some later step is the largest so far."""
    rng = random.Random(0)
    rows = [(" ".join(rng.choices(COMMON, k=min(28, 2 + int(rng.expovariate(0.15))))), rng.choice(["Old", "New"]))
            for _ in range(400)]
    write_csv(directory / "lengths.csv", rows)
    words = ["--steps", 16, "--batch", 4, "--seq", 32, "--seed", seed]
    plain, report, losses = train(directory, "named", *words, "--plain", out="lengths", data="lengths.csv")
    assert plain.returncode == 0, plain.stderr
    peaks = [step["peak_bytes"] for step in report["steps"]]
    assert max(peaks[1:]) > 1.1 * peaks[0], "the steps here do not grow: the test shows nothing"
    within, _, same = train(directory, "named", *words, "--budget", "40%", out="lengths-within", data="lengths.csv")
    assert within.returncode == 0, within.stderr
    assert losses == same


def test_the_budget_of_a_refusal_suffices(directory):
    """By --budget of each error, steps of all lengths are done in the end."""
    words = ["--steps", 12, "--batch", 4, "--seq", 32]
    budget, tries = 500_000, 0
    while True:
        done, _, _ = train(directory, "named", *words, "--budget", budget, out="refusal")
        if done.returncode == 0:
            break
        assert done.returncode == 3, done.stderr
        needed = int(done.stderr.split("give --budget ")[1].split()[0])
        assert needed > budget
        budget, tries = needed, tries + 1
        assert tries < 30
    assert tries > 1


REFUSED = {
    "no column": ("sentence,label\na,x\nb,y\n", [], "'bad.csv' line 1: there is no column 'text'"),
    "open quote": ('text,label\na,x\n"b,y\n', [], "'bad.csv' line 3: the quote that begins here does not end"),
    "one class": ("text,label\na,x\nb,x\n", [], "'bad.csv' has the label 'x' alone"),
    "another head": ("text,label\na,x\nb,y\n", ["--hf", "three"], "has 2 labels, 'x', 'y', and the classifier"),
    "unknown label": ("text,label\na,Old\nb,Newer\n", ["--data", "train.csv", "--eval", "bad.csv"],
                      "'bad.csv' line 3: the label 'Newer' is none of the training's, 'New', 'Old'"),
    "one of the classes": ("text,label\na,Old\nb,NEW\n", ["--hf", "named"],
                           "'bad.csv' has the labels 'NEW', 'Old', and the classifier in 'named' knows 'Old', 'New'"),
    "bytes of a terminal": ("text,\x1b[31m\na,x\n", [], "'?[31m'"),
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

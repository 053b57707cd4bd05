"""`remat train --hf DIR --data FILE.jsonl`: conversations, of which answers alone are learned, with the losses of
transformers where labels are -100 elsewhere."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import torch

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
COMMAND = os.environ.get("REMAT_COMMAND")
if not COMMAND:
    pytest.skip("REMAT_COMMAND names no command: run these by ctest", allow_module_level=True)

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
BATCH = 6


def chats(count, seed=0):
    """Conversations of other lengths, with other numbers of answers."""
    result = []
    for i in range(seed, seed + count):
        messages = [{"role": "system", "content": "Count."}] if i % 3 == 0 else []
        for turn in range(i % 2 + 1):
            messages.append({"role": "user", "content": f"What is {i} times {turn + 3}?"})
            messages.append({"role": "assistant", "content": f"It is {i * (turn + 3)}. " * (i % 4 + 1)})
        result.append(messages)
    return result


def write(path, conversations):
    path.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in conversations))


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("chats")
    text = "".join(f"It is {i * i}. What is {i} times 3?\nsystem user assistant Count. " for i in range(300))
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator([text], vocab_size=400, special_tokens=["<|im_start|>", "<|im_end|>", "<|end|>"])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, eos_token="<|im_end|>")
    fast.chat_template = TEMPLATE
    torch.manual_seed(0)
    sizes = {"vocab_size": len(fast), "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
             "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.1}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).save_pretrained(path / "llama")
    fast.save_pretrained(path / "llama")
    write(path / "chats.jsonl", chats(BATCH))
    write(path / "held-out.jsonl", chats(5, seed=20))
    return path


def train(directory, *words, out, data="chats.jsonl"):
    result = directory / f"{out}.json"
    done = subprocess.run([COMMAND, "train", "--hf", "llama", "--data", data, "--batch", str(BATCH), "--seq", "100",
                           "--steps", "3", "--lr", "1e-3", "--json", result, *map(str, words)],
                          capture_output=True, text=True, cwd=directory, timeout=300)
    report = json.loads(result.read_text()) if done.returncode == 0 else {"steps": []}
    return done, report, [step["loss_bits"] for step in report["steps"]]


def labelled(tokenizer, conversations, most):
    """Token ids and labels of a padded batch, by the places of answers in the texts."""
    rows = []
    for messages in conversations:
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        answers, at = [], 0
        for message in messages:
            begin = at + len(f"<|im_start|>{message['role']}\n")
            at = begin + len(message["content"] + "<|im_end|>\n")
            if message["role"] == "assistant":
                answers.append((begin, at))
        ids = encoded["input_ids"]
        labels = [token if any(b <= first < e for b, e in answers) else -100
                  for token, (first, _) in zip(ids, encoded["offset_mapping"])]
        rows.append((ids[:most], labels[:most]))
    longest = max(len(ids) for ids, _ in rows)
    pad = lambda row, value: row + [value] * (longest - len(row))  # noqa: E731
    ids = torch.tensor([pad(ids, 0) for ids, _ in rows])
    mask = torch.tensor([pad([1] * len(ids), 0) for ids, _ in rows])
    return ids, mask, torch.tensor([pad(labels, -100) for _, labels in rows])


def loss_of_transformers(directory, conversations, most=100, model="llama"):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory / "llama")
    model = transformers.LlamaForCausalLM.from_pretrained(directory / model).eval()
    ids, mask, labels = labelled(tokenizer, conversations, most)
    assert (labels == -100).any() and (labels != -100).any()
    return model(input_ids=ids, attention_mask=mask, labels=labels).loss.item()


def test_losses_are_those_of_transformers(directory):
    done, report, _ = train(directory, "--steps", 1, "--eval", "held-out.jsonl", "--save-hf", "tuned", out="one")
    assert done.returncode == 0, done.stderr
    assert report["steps"][0]["loss"] == pytest.approx(loss_of_transformers(directory, chats(BATCH)), rel=1e-5)
    judged = chats(5, seed=20)
    assert report["evaluation"]["before"] == pytest.approx(loss_of_transformers(directory, judged), rel=1e-5)
    assert report["evaluation"]["after"] == pytest.approx(loss_of_transformers(directory, judged, model="tuned"), rel=1e-5)
    tuned = transformers.AutoTokenizer.from_pretrained(directory / "tuned")
    assert tuned.chat_template == TEMPLATE, "the template goes with the model"


def test_longer_conversations_are_cut(directory):
    done, report, _ = train(directory, "--steps", 1, "--seq", 40, out="cut")
    assert done.returncode == 0, done.stderr
    assert report["steps"][0]["loss"] == pytest.approx(loss_of_transformers(directory, chats(BATCH), 40), rel=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory / "llama")
    lengths = [len(tokenizer(tokenizer.apply_chat_template(chat, tokenize=False), add_special_tokens=False)["input_ids"])
               for chat in chats(BATCH)]
    longer = sum(length > 40 for length in lengths)
    assert 0 < longer < BATCH
    assert f"'chats.jsonl': {longer} of {BATCH} conversations are cut to the 40 tokens of --seq\n" in done.stdout
    done, _, _ = train(directory, "--steps", 1, "--seq", max(lengths), out="not cut")
    assert done.returncode == 0 and "are cut" not in done.stdout, done.stdout


def test_a_budget_changes_no_bit(directory):
    plain, _, losses = train(directory, "--plain", out="plain")
    assert plain.returncode == 0, plain.stderr
    within, _, same = train(directory, "--budget", "70%", out="within")
    assert within.returncode == 0, within.stderr
    assert losses == same and len(set(losses)) == 3


def test_micro_batches_and_ranks_count_answers_not_conversations(directory):
    """Rows have other numbers of answers: a mean of the rows' means would be another loss."""
    _, whole, _ = train(directory, out="whole")
    expected = [step["loss"] for step in whole["steps"]]
    done, parts, _ = train(directory, "--accumulate", 3, out="parts")
    assert done.returncode == 0, done.stderr
    assert [step["loss"] for step in parts["steps"]] == pytest.approx(expected, rel=1e-4)
    done, ranks, _ = train(directory, "--ranks", 2, out="ranks")
    if "built without" in done.stderr:
        pytest.skip("this build has no --ranks")
    assert done.returncode == 0, done.stderr
    assert [step["loss"] for step in ranks["steps"]] == pytest.approx(expected, rel=1e-4)


def test_ranks_judge_by_batches_with_other_numbers_of_rows(directory):
    """Of 10 conversations the second rank has 4, which are fewer micro-batches: both gather shards as often."""
    write(directory / "ten.jsonl", chats(10, seed=40))
    words = ["--steps", 1, "--eval", "ten.jsonl", "--accumulate", 3]
    done, one, _ = train(directory, *words, out="judged alone")
    assert done.returncode == 0, done.stderr
    done, shards, _ = train(directory, *words, "--ranks", 2, "--shard", out="judged by two")
    if "built without" in done.stderr:
        pytest.skip("this build has no --ranks")
    assert done.returncode == 0, done.stderr
    for when in ("before", "after"):
        assert shards["evaluation"][when] == pytest.approx(one["evaluation"][when], rel=1e-3)


def test_examples_are_counted_and_lines_named(directory):
    done, _, _ = train(directory, out="counted")
    assert "examples/s" in done.stdout + done.stderr, done.stdout
    (directory / "wrong.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
    done, _, _ = train(directory, out="wrong", data="wrong.jsonl")
    assert done.returncode == 1 and "'wrong.jsonl' line 1: no message has the role" in done.stderr, done.stderr


def test_another_template_is_other_data(directory):
    first, _, _ = train(directory, "--checkpoint", "run.ckpt", out="first")
    assert first.returncode == 0, first.stderr
    file = directory / "llama" / "chat_template.jinja"
    file.write_text(TEMPLATE.replace("'<|im_start|>' + ", "'<|im_start|> ' + ", 1))
    second, _, _ = train(directory, "--steps", 4, "--checkpoint", "run.ckpt", "--resume", out="second")
    file.write_text(TEMPLATE)
    assert second.returncode != 0 and "chats.jsonl" in second.stderr, second.stderr

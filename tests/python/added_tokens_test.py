"""Random tokenizers whose added tokens have all kinds of settings: token ids are transformers', or the file is refused.

No text comes from elsewhere: all are made from seeds.
"""

from __future__ import annotations

import json
import os
import random
import subprocess

import pytest

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers  # noqa: E402

PROGRAM = os.environ.get("REMAT_TOKENIZE")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="REMAT_TOKENIZE does not name the program")

LETTERS = [*"abcfxoFABz", "é", "É", "ß", "ж", "中", "İ", "e\u0301", "\u0301", "1", "½", "²", "Ⓐ", "\u200d", "_", "‿"]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u2028", "\x0b", "\x85", "\u200b", "\ufeff"]
PUNCTUATION = [*"<>[]'.,!#-", "'s", "##", "▁", "Ġ", "«", "。"]
ODD = ["\x01", "\x1f", "\x7f", "\u00ad", "\ufffd", "\U000f0000", "😀", "👩\u200d👧"]
TEXTS = 40  # of each tokenizer


def alphabet(printable=False):
    pieces = LETTERS + SPACES + PUNCTUATION + ODD
    characters = {c for piece in pieces for c in piece + piece.lower() + piece.upper()}
    return sorted(c for c in characters if not printable or (c.isprintable() and not c.isspace()))


def content(rng):
    kind = rng.random()
    if kind < 0.6:
        word = "".join(rng.choices(LETTERS, k=rng.randint(1, 3)))
        return f"<{word}>" if kind < 0.3 else word
    return "".join(rng.choice(rng.choice([LETTERS, LETTERS, SPACES, PUNCTUATION, ODD])) for _ in range(rng.randint(1, 3)))


def added_tokens(rng):
    """Some are others in upper case, or with a space beside them."""
    tokens = {}
    changes = [str.upper, str.lower, lambda text: " " + text, lambda text: text + " ", lambda text: text + "o"]
    for _ in range(rng.randint(1, 6)):
        text = rng.choice(changes)(rng.choice(list(tokens))) if tokens and rng.random() < 0.3 else content(rng)
        single_word, lstrip, rstrip = (rng.random() < 0.4 for _ in range(3))
        normalized, special = rng.random() < 0.5, rng.random() < 0.3
        tokens[text] = AddedToken(
            text, single_word=single_word, lstrip=lstrip, rstrip=rstrip, normalized=normalized, special=special
        )
    return list(tokens.values())


def make_text(rng, contents):
    parts = []
    for _ in range(rng.randint(1, 8)):
        kind = rng.random()
        if kind < 0.4:
            parts.append(rng.choice([str, str, str.upper, str.lower])(rng.choice(contents)))
        else:
            parts.append(rng.choice(SPACES if kind < 0.65 else rng.choice([LETTERS, PUNCTUATION, ODD])))
    return "".join(parts)


def word_piece_vocabulary(characters):
    vocab = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])}
    for character in characters:
        vocab.setdefault(character, len(vocab))
        vocab.setdefault("##" + character, len(vocab))
    return vocab


def word_piece(rng):
    tokenizer = tokenizers.Tokenizer(models.WordPiece(word_piece_vocabulary(alphabet()), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=rng.random() < 0.5)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def bpe_parts(tokens, merges):
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    for left, right in merges:
        vocab[left + right] = len(vocab)
    return vocab, merges


def byte_level_parts():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return bpe_parts(letters, [("a", "b"), ("Ġ", "a"), ("f", "o"), ("Ġ", "f")])


def byte_level(rng):
    tokenizer = tokenizers.Tokenizer(models.BPE(*byte_level_parts()))
    forms = [None, normalizers.NFC(), normalizers.NFKD(), normalizers.Lowercase()]
    forms.append(normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()]))
    tokenizer.normalizer = rng.choice(forms)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=rng.random() < 0.5)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def with_byte_fallback(rng):
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *alphabet(), "▁"]
    vocab, merges = bpe_parts(tokens, [("▁", "a"), ("f", "o"), ("▁", "▁")])
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if rng.random() < 0.5:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        forms = [None, normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace("a", "")]
        tokenizer.normalizer = rng.choice([*forms, normalizers.Prepend("x")])
        scheme = rng.choice(["always", "first", "never"])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=rng.random() < 0.5)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def our_ids(directory, texts):
    """Or the message with which the directory is refused."""
    file = directory / "texts"
    file.write_bytes(b"".join(text.encode() + b"\0" for text in texts))
    done = subprocess.run([PROGRAM, "each", str(directory), str(file)], capture_output=True)
    if done.returncode != 0:
        message = done.stderr.decode()
        assert message.startswith("[tokenizer] "), message
        return message
    return [[int(id) for id in line.split()] for line in done.stdout.decode().splitlines()]


def reason_to_refuse(normalizer, tokens):
    """transformers takes any one of two tokens that are the same then, and runs for ever where one is empty."""
    if normalizer is None:
        return None
    contents = [normalizer.normalize_str(token.content) for token in tokens if token.normalized]
    if "" in contents:
        return "nothing is left of it"
    return "is the same as" if len(set(contents)) < len(contents) else None


def texts_that_differ(ours, texts, encode):
    differing = []
    for text, ids in zip(texts, ours, strict=True):
        try:
            wanted = encode(text)
        except BaseException as error:  # the end of a space lies before its begin, where tokens overlap
            assert "bad split" in str(error), error
            continue
        if ids != wanted:
            differing.append((text, ids, wanted))
    return differing


@pytest.mark.parametrize("make", [word_piece, byte_level, with_byte_fallback])
def test_ids_beside_added_tokens(make, tmp_path):
    refused, compared = 0, 0
    for seed in range(250):
        rng = random.Random(f"{make.__name__} {seed}")
        tokenizer, tokens = make(rng), added_tokens(rng)
        refusal = reason_to_refuse(tokenizer.normalizer, tokens)
        if "prepend_scheme=first" in str(tokenizer.pre_tokenizer) and "Replace" in str(tokenizer.normalizer):
            refusal = refusal or "takes characters away"
        tokenizer.add_tokens(tokens)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        texts = [make_text(rng, [token.content for token in tokens]) for _ in range(TEXTS)]
        ours = our_ids(tmp_path, texts)
        if refusal is not None:
            assert isinstance(ours, str) and refusal in ours, (seed, refusal, ours)
            refused += 1
            continue
        assert isinstance(ours, list), (seed, ours)
        # As from a file: what transformers does depends on how the tokens came.
        theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        differing = texts_that_differ(ours, texts, lambda text: theirs.encode(text, add_special_tokens=False).ids)
        assert not differing, (seed, differing[0], tokens)
        compared += len(texts)
    assert compared > 8000 and refused < 50


def save_vocabulary(directory, kind, vocab, merges):
    if kind == "bert":
        lines = sorted(vocab, key=vocab.get)
        (directory / "vocab.txt").write_text("".join(token + "\n" for token in lines), encoding="utf-8", newline="\n")
        return
    (directory / "vocab.json").write_text(json.dumps(vocab))
    (directory / "merges.txt").write_text("".join(f"{left} {right}\n" for left, right in merges), encoding="utf-8")


def as_json(token):
    return {name: getattr(token, name) for name in "content single_word lstrip rstrip normalized special".split()}


def make_directory(directory, rng, kind):
    """With the vocabulary alone, or a tokenizer.json; tokens are added by both, or named by the configuration."""
    directory.mkdir()
    lower = rng.random() < 0.5
    if kind == "bert":
        vocab, merges = word_piece_vocabulary(alphabet(printable=True)), []
        fast = transformers.BertTokenizer(vocab=vocab, do_lower_case=lower)
        roles = {"mask_token": "[MASK]", "cls_token": "[CLS]", "unk_token": "[UNK]"}
    else:
        vocab, merges = byte_level_parts()
        fast = transformers.GPT2Tokenizer(vocab=vocab, merges=merges, add_prefix_space=lower)
        roles = {"pad_token": "<pad>", "sep_token": "x"}
    fast.save_pretrained(directory)
    config = json.loads((directory / "tokenizer_config.json").read_text())
    config.pop("backend", None)
    alone = rng.random() < 0.6
    if alone:
        save_vocabulary(directory, kind, vocab, merges)
        (directory / "tokenizer.json").unlink()
    tokens = added_tokens(rng)
    if rng.random() < 0.5:
        role = rng.choice(list(roles))
        named = {**as_json(tokens[0]), "content": roles[role], "special": True}
        if rng.random() < 0.5:
            config[role] = {**named, "__type": "AddedToken"}
        else:
            config.pop(role, None)
            (directory / "special_tokens_map.json").write_text(json.dumps({role: named}))
        name = rng.choice(["extra_special_tokens", "additional_special_tokens"])
        config[name] = ["<extra>", {**as_json(tokens[-1]), "content": "foo", "__type": "AddedToken"}]
        tokens = [AddedToken(roles[role], normalized=named["normalized"])]
        tokens.append(AddedToken("foo", normalized=config[name][1]["normalized"]))
        contents = [roles[role], "<extra>", "foo"]
    elif alone:
        fast.add_tokens(tokens)
        config["added_tokens_decoder"] = {str(id): as_json(token) for id, token in fast.added_tokens_decoder.items()}
        contents = [token.content for token in tokens]
    else:
        fast.add_tokens(tokens)
        fast.save_pretrained(directory)
        contents = [token.content for token in tokens]
        config = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return reason_to_refuse(fast.backend_tokenizer.normalizer, tokens), contents


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_ids_of_a_models_directory(kind, tmp_path):
    compared = 0
    for seed in range(120):
        rng = random.Random(f"{kind} {seed}")
        directory = tmp_path / str(seed)
        refusal, contents = make_directory(directory, rng, kind)
        texts = [make_text(rng, contents) for _ in range(TEXTS)]
        ours = our_ids(directory, texts)
        if refusal is not None:
            assert isinstance(ours, str) and refusal in ours, (seed, refusal, ours)
            continue
        assert isinstance(ours, list), (seed, ours)
        theirs = transformers.AutoTokenizer.from_pretrained(directory)
        differing = texts_that_differ(ours, texts, lambda text: theirs(text, add_special_tokens=False)["input_ids"])
        assert not differing, (seed, differing[0], theirs.added_tokens_decoder)
        compared += len(texts)
    assert compared > 4000

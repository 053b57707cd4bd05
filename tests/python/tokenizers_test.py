"""Token ids of the C++ tokenizers are those of transformers' fast tokenizers, for vocabularies that are trained here.

No text comes from elsewhere: all are made from seeds.
"""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import unicodedata

import pytest

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

PROGRAM = os.environ.get("REMAT_TOKENIZE")
pytestmark = pytest.mark.skipif(not PROGRAM, reason="REMAT_TOKENIZE does not name the program")

MEGABYTE = 1_000_000
VOCABULARY = 6000

LETTERS = {
    "latin": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "accents": "àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿßœšžÀÉÎÕÜÇŁłŻżĐđƏəİıẞǅ",
    "greek": "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώΑΒΓΔΣΩΆΈϊΐ",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюяёАБВГДЙЁЩЯіїєґ",
    "arabic": "ابتثجحخدذرزسشصضطظعغفقكلمنهويءآأإؤئىةًٌٍَُِّْ",
    "hebrew": "אבגדהוזחטיכךלמםנןסעפףצץקרשתְִֵֶַָֹּׁ",
    "chinese": "的一是不了人我在有他这中大来上国個們說時㐀㐁𠀀𠮷豈更",
    "japanese": "あいうえおかがきぎくぐぱぴぷアイウエオカガキギパピプヴーゝヽ々日本語東京",
    "korean": "가각간갇한국어말씀뷁힣ㄱㄴㅏ각",
    "thai": "กขคงจฉชซญฎฏฐณดตถทธนบปผฝพฟมยรลวศษสหอะาิีึืุูเแโใไ็่้๊๋์ำ",
    "devanagari": "अआइईउऊएऐओऔकखगघचछजझटठडढणतथदधनपफबभमयरलवशषसहािीुूेैोौंःँ़्क्षज्ञ",
    "combining": "ae\u0301\u0308\u0323o\u0327\u0302n\u0303\u1e9b\u0323\u212b\u2126\ufb01\ufb03\u0344\u0958",
}
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "❤️", "🇩🇪", "1️⃣", "🧑🏿‍🚀", "☃", "✨", "©", "™", "🅰", "Ⓐ"]
CONTROLS = ["\x00", "\x01", "\x07", "\x1b", "\x7f", "\x85", "\x9f", "\u200b", "\u200e", "\u202e", "\u2060", "\ufeff"]
CONTROLS += ["\u00ad", "\ufffd", "\ufffe", "\ue000", "\U000f0000", "\u0378", "\U0010ffff", "\u061c"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0", "\u2003", "\u3000", "\u2028"]
SPACES += ["\u1680", "\x0b", "\x0c"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
PUNCTUATION += ["—", "…", "«", "»", "¿", "。", "、", "「", "」", "؟", "۔", "।", "₹", "€"]
PUNCTUATION += ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'ſ", "n't", "’s", "--", "..."]
PUNCTUATION += ["##", "▁", "Ġ", "§", "‿"]
NUMBERS = ["0", "7", "42", "1234567", "3.14", "1e-9", "½", "²", "Ⅷ", "٣٤", "४२", "五", "①", "੩", "𝟘𝟙"]
CODE = ["for (int i = 0; i < n; ++i) {\n    x[i] += f(y, z);\n}\n", "def f(x):\n\treturn x**2  # square\n"]
CODE += ["<a href=\"#\">&amp;</a>"]
CODE += ["if(!p||p->q==0x1F){return;}", "\t\t\t}\n\n\n", "https://example.org/a_b?c=d&e=%20f", "<0x0A>"]
CODE += ["<s>", "</s>", "[MASK] [CLS][SEP]"]
CODE += ["<|endoftext|>", "<unk>", "[unk]", "[mask]"]


def words_of(rng, count):
    """Words that come again, as in languages."""
    return ["".join(rng.choices(letters, k=rng.randint(1, 9))) for letters in LETTERS.values() for _ in range(count)]


def make_text(seed, size):
    rng = random.Random(seed)
    words = words_of(random.Random(1), 150)  # in all texts
    parts, length = [], 0
    while length < size:
        kind = rng.random()
        if kind < 0.62:
            part = rng.choice(words) + rng.choice(["", " ", " ", " ", ", ", ". "])
        elif kind < 0.72:
            part = "".join(rng.choice(rng.choice(list(LETTERS.values()))) for _ in range(rng.randint(1, 12)))
        elif kind < 0.965:
            part = rng.choice(rng.choice([EMOJI, SPACES, SPACES, PUNCTUATION, PUNCTUATION, NUMBERS]))
        elif kind < 0.98:
            part = rng.choice(CONTROLS)
        elif kind < 0.995:
            part = rng.choice(CODE)
        elif kind < 0.998:
            part = rng.choice(["a", "ab", "é", "ж", "中", "!", "7", " ", "x\u0301", "AbC"]) * rng.randint(90, 400)
        else:
            part = "".join(rng.choice(LETTERS["latin"]) for _ in range(rng.randint(95, 105)))
        parts.append(part)
        length += len(part.encode())
    return "".join(parts)


def train(tokenizer, trainer):
    text = make_text(2, MEGABYTE)
    tokenizer.train_from_iterator((text[at : at + 1000] for at in range(0, len(text), 1000)), trainer)
    return tokenizer


def bert(directory, lower):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainers = tokenizers.trainers
    train(tokenizer, trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=special, show_progress=False))
    fast = transformers.BertTokenizer(vocab=tokenizer.get_vocab(), do_lower_case=lower)
    fast.save_pretrained(directory)
    return fast


def trained_bpe(tokenizer, trainer):
    """The vocabulary and the merges."""
    model = json.loads(train(tokenizer, trainer).to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def byte_level_bpe(pre_tokenizer):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    return trained_bpe(
        tokenizer,
        tokenizers.trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
        ),
    )


@functools.cache
def gpt2_vocabulary():
    return byte_level_bpe(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False))


def gpt2(directory):
    vocab, merges = gpt2_vocabulary()
    fast = transformers.GPT2Tokenizer(vocab=vocab, merges=merges)
    fast.save_pretrained(directory)
    return fast


def gpt2_with_prefix_space(directory):
    vocab, merges = byte_level_bpe(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True))
    fast = transformers.GPT2Tokenizer(vocab=vocab, merges=merges, add_prefix_space=True, add_bos_token=True)
    fast.save_pretrained(directory)
    return fast


def by_pattern(directory, digits):
    """As Llama 3 (digits {1,3}) and Qwen 2 (none)."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    pre = tokenizers.pre_tokenizers
    splits = pre.Sequence(
        [
            pre.Split(tokenizers.Regex(pattern), behavior="isolated"),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    vocab, merges = byte_level_bpe(splits)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges, ignore_merges=digits != ""))
    tokenizer.normalizer = tokenizers.normalizers.NFC() if digits == "" else None
    tokenizer.pre_tokenizer = splits
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.post_processor = tokenizers.processors.Sequence(
        [
            tokenizers.processors.ByteLevel(trim_offsets=False),
            tokenizers.processors.TemplateProcessing(
                single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", vocab["<|endoftext|>"])]
            ),
        ]
    )
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|endoftext|>")
    tool = tokenizers.AddedToken("<tool>", lstrip=True, rstrip=True)
    fast.add_tokens([tool, tokenizers.AddedToken("ab", single_word=True)])
    fast.save_pretrained(directory)
    return fast


def from_splits(directory, *splits, behavior="isolated", invert=False):
    """Byte-level BPE behind other pre-tokenizers: expressions, or parts."""
    pre = tokenizers.pre_tokenizers
    parts = [pre.Split(tokenizers.Regex(part), behavior=behavior, invert=invert) if isinstance(part, str) else part
             for part in splits]
    by_regex = not any(isinstance(part, str) for part in splits)
    whole = pre.Sequence([*parts, pre.ByteLevel(add_prefix_space=False, use_regex=by_regex)])
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(*gpt2_vocabulary()))
    tokenizer.pre_tokenizer = whole
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    fast.save_pretrained(directory)
    return fast


UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(contractions, digits):
    """The expressions of GPT-4o (Phi-4 mini) and of Tekken (Mistral since Nemo)."""
    words = "|".join(r"[^\r\n\p{L}\p{N}]?" + letters + contractions
                     for letters in (f"{UPPER}*{LOWER}+", f"{UPPER}+{LOWER}*"))
    return words + "|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def with_tokens(vocab, *tokens):
    return vocab | {token: len(vocab) + i for i, token in enumerate(tokens)}


def roberta(directory):
    vocab, merges = gpt2_vocabulary()
    vocab = with_tokens(vocab, "<s>", "<pad>", "</s>", "<unk>", "<mask>")
    fast = transformers.RobertaTokenizer(vocab=vocab, merges=merges,
                                         mask_token=tokenizers.AddedToken("<mask>", lstrip=True))
    fast.save_pretrained(directory)
    return fast


def gemma(directory):
    vocab, merges = llama_vocabulary()
    vocab = with_tokens(vocab, "<bos>", "<eos>", "<pad>", "<mask>")
    fast = transformers.GemmaTokenizer(vocab=vocab, merges=merges, add_bos_token=True)
    fast.add_tokens([tokenizers.AddedToken("\n" * count, normalized=False) for count in (2, 3, 4)])
    fast.save_pretrained(directory)
    return fast


@functools.cache
def llama_vocabulary():
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(split=True)
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    # Not all characters of the text are in the alphabet: the others are bytes.
    return trained_bpe(
        tokenizer,
        tokenizers.trainers.BpeTrainer(
            vocab_size=VOCABULARY, special_tokens=special, limit_alphabet=400, show_progress=False
        ),
    )


def llama(directory):
    vocab, merges = llama_vocabulary()
    fast = transformers.LlamaTokenizer(vocab=vocab, merges=merges, add_bos_token=True)
    fast.save_pretrained(directory)
    return fast


def llama_as_of_old(directory):
    """With normalizers in place of the pre-tokenizer, as published files have it."""
    vocab, merges = llama_vocabulary()
    parts = tokenizers.normalizers
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = parts.Sequence([parts.Prepend("▁"), parts.Replace(" ", "▁")])
    dec = tokenizers.decoders
    tokenizer.decoder = dec.Sequence([dec.Replace("▁", " "), dec.ByteFallback(), dec.Fuse(), dec.Strip(" ", 1, 0)])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", vocab["<s>"])]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.save_pretrained(directory)
    return fast


KINDS = {
    "bert_uncased": lambda directory: bert(directory, True),
    "bert_cased": lambda directory: bert(directory, False),
    "gpt2": gpt2,
    "gpt2_with_prefix_space": gpt2_with_prefix_space,
    "llama3": lambda directory: by_pattern(directory, "{1,3}"),
    "qwen2": lambda directory: by_pattern(directory, ""),
    "phi4_mini": lambda directory: from_splits(
        directory, cased("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", r"\p{N}{1,3}"), behavior="removed", invert=True),
    "mistral_nemo": lambda directory: from_splits(directory, cased("", r"\p{N}")),
    "smollm": lambda directory: from_splits(directory, tokenizers.pre_tokenizers.Digits(individual_digits=True)),
    "roberta": roberta,
    "gemma": gemma,
    "llama": llama,
    "llama_as_of_old": llama_as_of_old,
}


def run(what, directory, file):
    done = subprocess.run([PROGRAM, what, str(directory), str(file)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done


def ours(what, directory, text, tmp_path):
    file = tmp_path / "text"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = run(what, directory, file)
    print(f"{file.stat().st_size / 1e6 / float(done.stderr):.1f} MB/s")
    return [int(line) for line in done.stdout.split()]


def assert_same(ids, wanted, fast):
    if ids == wanted:
        return
    at = next((i for i, (a, b) in enumerate(zip(ids, wanted)) if a != b), min(len(ids), len(wanted)))
    show = fast.convert_ids_to_tokens
    pytest.fail(
        f"{len(ids)} ids, transformers has {len(wanted)}; from {at} on {show(ids[at - 3 : at + 5])}, "
        f"transformers {show(wanted[at - 3 : at + 5])}"
    )


@pytest.fixture(scope="module", params=KINDS)
def kind(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(request.param)
    KINDS[request.param](directory)
    return directory, transformers.AutoTokenizer.from_pretrained(directory)


def test_a_megabyte_of_many_languages(kind, tmp_path):
    directory, fast = kind
    text = make_text(3, MEGABYTE)
    ids = ours("ids", directory, text, tmp_path)
    assert len(ids) > MEGABYTE / 20
    assert_same(ids, fast(text, add_special_tokens=False)["input_ids"], fast)


def test_special_tokens_around_a_text_and_the_text_of_ids(kind, tmp_path):
    directory, fast = kind
    for seed in range(5):
        text = make_text(100 + seed, 20_000)
        ids = ours("special", directory, text, tmp_path)
        assert_same(ids, fast(text)["input_ids"], fast)
        file = tmp_path / "ids"
        file.write_text(" ".join(map(str, ids)))
        decoded = run("decode", directory, file).stdout.decode()
        assert decoded == fast.backend_tokenizer.decode(ids, skip_special_tokens=False)


def test_short_texts(kind, tmp_path):
    directory, fast = kind
    texts = ["", " ", "a", "\n", "\u0301", "'", "▁"]
    texts += ["[MASK]", " <s>x</s> ", "<|endoftext|><|endoftext|> y", " <tool>  b", "ab cab"]
    for text in texts:
        assert_same(ours("special", directory, text, tmp_path), fast(text)["input_ids"], fast)


def test_bytes_that_are_not_utf_8(kind, tmp_path):
    directory, fast = kind
    rng = random.Random(5)
    text = bytearray(make_text(6, 50_000).encode())
    for _ in range(2000):
        text[rng.randrange(len(text))] = rng.randrange(256)
    replaced = bytes(text).decode("utf-8", errors="replace")
    assert replaced.count("\ufffd") > 1000
    wanted = fast(replaced, add_special_tokens=False)["input_ids"]
    assert_same(ours("ids", directory, bytes(text), tmp_path), wanted, fast)


@pytest.mark.parametrize("kind", ["bert_uncased", "bert_cased", "gpt2", "llama3", "phi4_mini"], indirect=True)
def test_every_character_of_unicode(kind, tmp_path):
    """Between letters, digits and spaces: those of Unicode 14, which Python 3.11 knows."""
    directory, fast = kind
    characters = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Cn")]
    characters.remove("\U00011938")  # its canonical decomposition is unknown to transformers
    text = "".join(f"a{c}b {c}{c} 1{c}2 '{c}" for c in characters)
    assert_same(ours("ids", directory, text, tmp_path), fast(text, add_special_tokens=False)["input_ids"], fast)


@pytest.mark.parametrize("lower", [True, False])
def test_berts_vocabulary_alone(lower, tmp_path):
    bert(tmp_path / "all", lower)
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path / "all")
    directory = tmp_path / "alone"
    directory.mkdir()
    tokens = sorted(fast.get_vocab().items(), key=lambda item: item[1])
    (directory / "vocab.txt").write_text("".join(token + "\n" for token, _ in tokens), encoding="utf-8")
    (directory / "tokenizer_config.json").write_text('{"do_lower_case": %s}' % str(lower).lower())
    text = make_text(7, 200_000)
    assert_same(ours("special", directory, text, tmp_path), fast(text)["input_ids"], fast)


def test_gpt2s_vocabulary_and_merges_alone(tmp_path):
    vocab, merges = gpt2_vocabulary()
    fast = transformers.GPT2Tokenizer(vocab=vocab, merges=merges)
    fast.backend_tokenizer.model.save(str(tmp_path))
    text = make_text(8, 200_000)
    assert_same(ours("special", tmp_path, text, tmp_path), fast(text)["input_ids"], fast)

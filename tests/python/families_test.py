"""Kinds of models that only transformers' directories describe: trained within a budget with the same bits, and what
remat's models cannot compute, refused by name."""

import json
import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
from pretrained_models import DISTILBERT, MODELS, PROGRAM, ROBERTA, SIZES, inputs, make, run  # noqa: E402

COMMAND = os.environ.get("REMAT_COMMAND")
if not PROGRAM or not COMMAND:
    pytest.skip("REMAT_PRETRAINED_PROGRAM or REMAT_COMMAND names no program: run these by ctest", allow_module_level=True)

TEXT = "".join(f"In the beginning there were {i * i % 997} words, and nobody counted {i}. " for i in range(300))
WINDOWS = dict(sliding_window=7, head_dim=8)
DEEP = dict(SIZES, num_hidden_layers=4, pad_token_id=0)
KINDS = {
    "Mistral": dict(DEEP, **WINDOWS),
    "Qwen2": dict(DEEP, use_sliding_window=True, sliding_window=7, max_window_layers=2),
    "Qwen3": dict(DEEP, head_dim=8, tie_word_embeddings=True),
    "Phi3": DEEP,
    "Gemma": dict(DEEP, head_dim=8),
    "Gemma2": dict(DEEP, **WINDOWS),
    "Gemma3": dict(DEEP, **WINDOWS),
    "Roberta": dict(ROBERTA, num_hidden_layers=4, pad_token_id=0),
    "DistilBert": dict(DISTILBERT, n_layers=4),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("families")
    (path / "text").write_text(TEXT)
    bpe = tokenizers.ByteLevelBPETokenizer()
    special = dict(pad_token="<pad>", bos_token="<s>", cls_token="<s>", eos_token="</s>", sep_token="</s>",
                   mask_token="<mask>")
    bpe.train_from_iterator([TEXT], vocab_size=300, special_tokens=sorted(set(special.values()), reverse=True))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=bpe._tokenizer, **special)
    torch.manual_seed(0)
    for kind, settings in KINDS.items():
        config = "Gemma3TextConfig" if kind == "Gemma3" else kind + "Config"
        head = "ForMaskedLM" if kind in ("Roberta", "DistilBert") else "ForCausalLM"
        settings = dict(settings, vocab_size=len(fast), initializer_range=0.1)
        getattr(transformers, kind + head)(getattr(transformers, config)(**settings)).save_pretrained(path / kind)
        fast.save_pretrained(path / kind)
    return path


def compare(directory, kind, *words):
    task = ["--task", "mlm"] if kind in ("Roberta", "DistilBert") else []
    return subprocess.run([COMMAND, "compare", "--hf", kind, *task, "--data", "text", "--steps", "4", "--batch", "4",
                           "--seq", "24", "--budget", "50%", *words], capture_output=True, text=True, cwd=directory)


@pytest.mark.parametrize("words", [[], ["--lora", "2"]], ids=["all", "factors"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_budget_changes_no_bit(directory, kind, words):
    done = compare(directory, kind, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bit-identical: yes" in done.stdout


def test_a_decoder_has_no_dropout(directory):
    done = compare(directory, "Qwen3", "--dropout", "0.1")
    assert done.returncode == 1 and "a qwen3 has no dropout, and 0.1 is asked for" in done.stderr, done.stderr


def rope(kind, **settings):
    return {"rope_parameters": dict(rope_type=kind, rope_theta=10000.0, **settings)}


REFUSED = [
    ("llama", rope("proportional"), 'positions of type "proportional"; there are default, linear,'),
    ("llama", rope("linear"), 'no "factor" for positions of type "linear"'),
    ("llama", rope("default", mrope_section=[2, 1, 1]), '[2,1,1] for "mrope_section", which positions of type "default"'),
    ("llama", {"partial_rotary_factor": 0.5}, '"partial_rotary_factor" below 1'),
    ("llama", {"attention_dropout": 0.1}, '0.1 for "attention_dropout"'),
    ("mistral", {"layer_types": ["full_attention"] * 3}, '"layer_types", which a mistral does not read'),
    ("qwen2", {"layer_types": ["full_attention", "chunked_attention", "full_attention"]}, '"chunked_attention" in "lay'),
    ("qwen2", {"layer_types": ["full_attention"]}, '"layer_types" that is no list of 3 layers'),
    ("qwen2", {"layer_types": ["sliding_attention"] * 3}, 'no number for "sliding_window"'),
    ("gemma", {"use_bidirectional_attention": True}, 'true for "use_bidirectional_attention"'),
    ("gemma", {"hidden_act": "relu"}, '"relu" for "hidden_act"'),
    ("gemma3_text", {"attn_logit_softcapping": 30.0}, '30.0 for "attn_logit_softcapping"'),
    ("gemma3_text", {"rope_parameters": {"rope_type": "linear"}}, '"linear" for "rope_type" in "rope_parameters"'),
    ("gemma3_text", {"rope_scaling": {"type": "linear", "factor": 8.0}}, 'a "type" in "rope_scaling"'),
    ("phi3", {"resid_pdrop": 0.1}, '0.1 for "resid_pdrop"'),
    ("phi3's long positions", rope("longrope", short_factor=[1.0], long_factor=[2.0]), "1 factors are given for 4 wave"),
    ("phi3's long positions", {"original_max_position_embeddings": None}, 'no "original_max_position_embeddings"'),
    ("roberta with masked tokens", {"pad_token_id": None}, 'no "pad_token_id" below "max_position_embeddings"'),
    ("roberta with masked tokens", {"hidden_act": "gelu_new"}, '"gelu_new" for "hidden_act"'),
    ("distilbert with masked tokens", {"sinusoidal_pos_embds": True}, 'true for "sinusoidal_pos_embds"'),
    ("distilbert with masked tokens", {"activation": "relu"}, '"relu" for "activation"'),
]


@pytest.mark.parametrize("name, settings, message", REFUSED)
def test_what_a_configuration_asks_for_in_vain_is_refused_by_name(name, settings, message, tmp_path):
    assert name in MODELS
    task, model = make(name)
    model.save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    done = run(tmp_path / "model", task, inputs(name)[0], tmp_path)
    assert done.returncode == 1 and message in done.stderr, done.stderr


def test_settings_of_older_files_mean_the_same(tmp_path):
    """As transformers wrote them before version 5: beside each other, and with null where there is a usual one."""
    name = "gemma3_text, stretched"
    task, model = make(name)
    model.save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    del config["rope_parameters"]
    config |= dict(rope_theta=500.0, rope_local_base_freq=30.0, rope_scaling={"rope_type": "linear", "factor": 8.0},
                   attn_logit_softcapping=None)
    path.write_text(json.dumps(config))
    older = type(model).from_pretrained(tmp_path / "model").eval()
    tensors, named = inputs(name)
    logits = model(**named).logits
    assert torch.equal(older(**named).logits, logits)
    done = run(tmp_path / "model", task, tensors, tmp_path)
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(load_file(tmp_path / "out.safetensors")["logits"], logits.detach(), rtol=1e-4, atol=1e-5)

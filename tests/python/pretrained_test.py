"""Models of the zoo with weights that transformers wrote: the same logits and gradients, and the way back."""

import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

transformers = pytest.importorskip("transformers")
PROGRAM = os.environ.get("REMAT_PRETRAINED_PROGRAM")
if not PROGRAM:
    pytest.skip("REMAT_PRETRAINED_PROGRAM names no program: run these by ctest", allow_module_level=True)

VOCABULARY, BATCH, SEQ = 61, 3, 17
LLAMA = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
ROPE3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
             original_max_position_embeddings=16)
BERT = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=32)


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, n_positions=32))


def llama(**settings):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, **settings}))


MODELS = {
    "gpt2": ("lm", gpt2),
    "llama": ("lm", llama),
    "llama tied, wider heads": ("lm", lambda: llama(tie_word_embeddings=True, head_dim=16)),
    "llama 3's positions": ("lm", lambda: llama(rope_parameters=ROPE3)),
    "bert that classifies": ("classify", lambda: transformers.BertForSequenceClassification(
        transformers.BertConfig(**BERT, num_labels=3))),
    "bert with masked tokens": ("mlm", lambda: transformers.BertForMaskedLM(transformers.BertConfig(**BERT))),
}


VIT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=16, patch_size=4,
           num_labels=3)
MODELS["vit"] = ("classify", lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**VIT)))


def make(name):
    task, build = MODELS[name]
    torch.manual_seed(7)
    model = build().eval()
    with torch.no_grad():  # norms and biases too, which are ones and zeros at first
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3)
    return task, model


def inputs(name):
    task = MODELS[name][0]
    generator = torch.Generator().manual_seed(3)
    if name == "vit":
        images = torch.randn(BATCH, 3, 16, 16, generator=generator)
        return {"input": images, "target": torch.tensor([0, 2, 1])}, dict(pixel_values=images)
    tokens = torch.randint(0, VOCABULARY, (BATCH, SEQ), generator=generator)
    if task == "lm":
        return {"input": tokens, "target": tokens.roll(1)}, dict(input_ids=tokens)
    mask = torch.ones_like(tokens)
    mask[1, SEQ - 5:] = 0
    types = (torch.arange(SEQ) > 8).long().expand(BATCH, SEQ).contiguous()
    target = torch.tensor([0, 2, 1]) if task == "classify" else tokens.roll(1)
    named = dict(input_ids=tokens, token_type_ids=types, attention_mask=mask)
    return {"input": torch.stack([tokens, types, mask], 1), "target": target}, named


def run(directory, task, tensors, tmp_path):
    save_file(tensors, tmp_path / "in.safetensors")
    return subprocess.run([PROGRAM, directory, task, tmp_path / "in.safetensors", tmp_path / "out.safetensors",
                           tmp_path / "gradients", tmp_path / "saved"], capture_output=True, text=True)


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_computes_what_transformers_computes(name, sharded, tmp_path):
    task, model = make(name)
    model.save_pretrained(tmp_path / "model", max_shard_size="20KB" if sharded else "1GB")
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
    model = type(model).from_pretrained(tmp_path / "model")
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[key]), key


def test_weights_of_a_base_model_get_a_new_head(tmp_path):
    torch.manual_seed(7)
    transformers.BertModel(transformers.BertConfig(**BERT)).save_pretrained(tmp_path / "model")
    done = run(tmp_path / "model", "classify", inputs("bert that classifies")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["classifier.weight", "classifier.bias"]
    saved = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert saved.config.num_labels == 3


def test_half_precision_weights_are_trained_in_float32(tmp_path):
    task, model = make("gpt2")
    model.to(torch.bfloat16).save_pretrained(tmp_path / "model")
    done = run(tmp_path / "model", task, inputs("gpt2")[0], tmp_path)
    assert done.returncode == 0, done.stderr
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "saved")
    assert again.dtype == torch.float32
    assert torch.equal(again.transformer.wte.weight, model.transformer.wte.weight.float())


REFUSED = {
    "no such kind": (dict(model_type="mamba"), "describes a mamba; there are gpt2, llama, bert, vit"),
    "another activation": (dict(activation_function="relu"), '"relu" for "activation_function"'),
    "more layers than weights": (dict(n_layer=5), "have no tensor 'transformer.h.3.ln_1.weight'"),
    "more layers than any machine holds": (dict(n_layer=16000000), "describes"),
    "a wider model": (dict(n_embd=64), "config.json says [61, 64]"),
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

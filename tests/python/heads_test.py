"""Heads of Hugging Face's language models: remat.wrap(), remat.enable() and the Trainer make their losses in tiles."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import weakref

import pytest
import torch
from compare import same_bits
from known_processor import HAS_TILES, needs_tiles
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

import remat
from remat import heads
from remat.heads import find_heads

transformers = pytest.importorskip("transformers")

WORDS = 1501
SIZES = dict(
    vocab_size=WORDS, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=128,
)
GROUPS = SIZES | dict(num_key_value_heads=2)
CAUSAL = {
    "Llama": GROUPS,
    "Llama tied": GROUPS | dict(tie_word_embeddings=True),
    "GPT2": dict(vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=128),
    "Mistral": GROUPS,
    "Qwen2": GROUPS,
    "Qwen3": GROUPS | dict(head_dim=8),
    "Gemma": GROUPS | dict(head_dim=8),
    "Gemma2": GROUPS | dict(head_dim=8),
    "Phi3": GROUPS | dict(pad_token_id=0),
    "Bloom": dict(vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4),
}
MASKED = {
    "Bert": SIZES,
    "Roberta": SIZES,
    "DistilBert": dict(vocab_size=WORDS, dim=32, hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=128),
}


def make(family):
    torch.manual_seed(0)
    name = family.split()[0]
    config = getattr(transformers, f"{name}Config")(**(CAUSAL | MASKED)[family])
    kind = "ForMaskedLM" if family in MASKED else "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    return getattr(transformers, name + kind)(config).train()


def train(model, steps=2, *, autocast=False, read=None, context=None, call=None, **inputs):
    """The losses, gradients and parameters of some steps."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW((each for each in model.parameters() if each.requires_grad), 1e-2)
    bits = []
    for _ in range(steps):
        tokens = torch.randint(3, WORDS, (4, 70))
        labels = tokens.masked_fill(torch.rand(tokens.shape) < 0.2, -100)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            outputs = (model if call is None else call)(input_ids=tokens, labels=labels, **inputs)
        outputs.loss.backward()
        if read:
            bits.append(read(outputs))
        bits += [outputs.loss.detach(), *(each.grad.clone() for each in model.parameters() if each.grad is not None)]
        optimizer.step()
        optimizer.zero_grad()
    return [*bits, *(each.detach() for each in model.parameters())]


def head_after(model, **options):
    """What the last report says of the head, after steps with the bits of plain."""
    expected = train(copy.deepcopy(model), **options)
    remat.wrap(model, head="tiles")
    found = train(model, **options)
    assert len(expected) == len(found) and all(map(same_bits, expected, found))
    return remat.session_of(model).report().head


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("family", [*CAUSAL, *MASKED])
def test_families_have_the_bits_of_plain(family, autocast):
    head = head_after(make(family), autocast=autocast)
    if family == "Gemma2":
        assert head == "whole: aten::div reads the logits"
    elif HAS_TILES:
        assert head.startswith("tiles of ") and "made too" not in head


@pytest.mark.parametrize(
    "read",
    [
        lambda outputs: outputs.logits.argmax(-1),
        lambda outputs: outputs["logits"].detach().clone(),
        lambda outputs: outputs[1].float().softmax(-1).detach(),
    ],
)
def test_logits_that_are_read_are_right(read):
    head = head_after(make("Llama"), read=read)
    assert head.startswith("tiles of ") or not HAS_TILES


@pytest.mark.parametrize("family", ["Llama", "Bert"])
@pytest.mark.parametrize("reduced", [False, True])
def test_a_budget_holds_and_the_bits_are_plain_s(family, reduced):
    model = make(family)
    expected = train(copy.deepcopy(model))
    remat.wrap(model, "80%" if reduced else None, head="tiles")
    assert all(map(same_bits, expected, train(model)))
    report = remat.session_of(model).report()
    assert report.completed and report.peak_bytes <= report.budget_bytes
    assert str(report).splitlines()[-1] == f"head: {report.head}" and report.to_dict()["head"] == report.head


def test_the_peak_is_smaller_by_the_logits():
    """Of the first step too, in which tiles are tried; with "auto", as these logits are large."""
    config = transformers.LlamaConfig(**GROUPS | dict(vocab_size=20_000))
    logits = 4 * 250 * 20_000 * 4

    def peaks(how):
        torch.manual_seed(0)
        model = remat.wrap(transformers.LlamaForCausalLM(config), **how)
        found = []
        for _ in range(3):
            model.zero_grad()
            tokens = torch.randint(20_000, (4, 250))
            model(input_ids=tokens, labels=tokens).loss.backward()
            report = remat.session_of(model).report()
            found.append(report.activation_peak_bytes)
        return found, report.head

    plain, head = peaks({})
    assert head == "" and min(plain) > 2 * logits
    tiled, head = peaks({"head": "auto"})
    assert head.startswith("tiles of ") or not HAS_TILES
    if HAS_TILES:
        assert tiled[0] < min(plain) - 1.4 * logits
        assert max(tiled[1:]) < min(plain) - 1.5 * logits


def test_large_logits_may_be_whole_with_auto_where_the_budget_has_room(monkeypatch):
    monkeypatch.setattr(heads, "_LARGE", 1 << 18)
    model = make("Llama")
    tokens = torch.randint(0, WORDS, (4, 64))

    def told(budget, steps=13):
        wrapped = remat.wrap(copy.deepcopy(model), budget=budget, head="auto")
        reasons, losses = [], []
        for _ in range(steps):
            loss = wrapped(input_ids=tokens, labels=tokens).loss
            loss.backward()
            wrapped.zero_grad()
            losses.append(loss.item())
            reasons.append(remat.session_of(wrapped).report().head)
        assert len(set(losses)) == 1
        return reasons

    roomy = told("1GiB")
    if HAS_TILES:
        assert all(reason.startswith("tiles of") for reason in roomy[:6])
    assert roomy[6:12] == ["whole: the budget has room, and steps are compared"] * 6
    assert roomy[12].startswith(("tiles of", "whole: the shortest step took "))
    if HAS_TILES:
        for other in ("90%", remat.Pool("1GiB")):
            assert told(other)[-1].startswith("tiles of")


def test_small_logits_are_whole_with_auto():
    model = remat.wrap(make("GPT2"), head="auto")
    outputs = model(input_ids=torch.ones(4, 70, dtype=torch.long))
    assert type(outputs.logits) is torch.Tensor
    del outputs
    train(model)
    assert remat.session_of(model).report().head == "whole: no cross-entropy of large logits was seen"


def test_num_items_in_batch_and_shifted_labels():
    labels = torch.randint(WORDS, (4, 70))
    head = head_after(make("Qwen2"), num_items_in_batch=torch.tensor(171), shift_labels=labels)
    assert head.startswith("tiles of ") or not HAS_TILES


def test_evaluation_and_generation_have_whole_logits():
    model = make("GPT2")
    plain = copy.deepcopy(model).eval()
    remat.wrap(model, head="tiles").eval()
    tokens = torch.randint(3, WORDS, (4, 70))
    with torch.no_grad():
        expected, found = plain(input_ids=tokens, labels=tokens), model(input_ids=tokens, labels=tokens)
    assert type(found.logits) is torch.Tensor
    assert same_bits(expected.logits, found.logits) and same_bits(expected.loss, found.loss)
    options = dict(max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert torch.equal(plain.generate(tokens, **options), model.generate(tokens, **options))


@pytest.mark.parametrize("tied", [False, True])
def test_lora(tied):
    peft = pytest.importorskip("peft")
    base = make("Llama tied" if tied else "Llama")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    torch.manual_seed(2)
    head = head_after(peft.get_peft_model(base, config))
    assert head.startswith("tiles of ") or not HAS_TILES


@pytest.mark.parametrize("adapted", [dict(target_modules=["q_proj", "lm_head"]), dict(target_modules=["q_proj"], modules_to_save=["lm_head"])])
def test_heads_that_lora_changes(adapted):
    peft = pytest.importorskip("peft")
    torch.manual_seed(2)
    head_after(peft.get_peft_model(make("Llama"), peft.LoraConfig(r=4, **adapted)))


def test_gradient_checkpointing():
    model = make("Llama")
    model.gradient_checkpointing_enable()
    head = head_after(model)
    assert head.startswith("tiles of ") or not HAS_TILES


def test_enable():
    model = make("GPT2")
    expected = train(copy.deepcopy(model))
    remat.enable(model, head="tiles")
    (head,) = find_heads(model)
    assert all(map(same_bits, expected, train(model)))
    tokens = torch.randint(3, WORDS, (4, 70))
    assert type(model(input_ids=tokens).logits) is not torch.Tensor
    remat.disable(model)
    assert type(model(input_ids=tokens).logits) is torch.Tensor
    assert not head._forward_pre_hooks and not head._forward_hooks


def test_enabled_and_wrapped_models_take_away_their_own_alone():
    model = remat.wrap(remat.enable(make("GPT2"), head="tiles"), head="tiles")
    expected = train(make("GPT2"))
    remat.unwrap(model)
    assert type(model(input_ids=torch.ones(4, 70, dtype=torch.long)).logits) is not torch.Tensor
    assert all(map(same_bits, expected, train(model)))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_wrapped_models_are_wrapped(copied):
    model = copied(remat.wrap(make("GPT2"), head="tiles"))
    assert all(map(same_bits, train(make("GPT2")), train(model)))
    assert remat.session_of(model).report().head.startswith("tiles of ") or not HAS_TILES
    remat.unwrap(model)
    assert not find_heads(model)[0]._forward_pre_hooks


def test_hooks_on_the_head_see_logits():
    seen = []

    def make_hooked():
        model = make("GPT2")
        model.lm_head.register_forward_hook(lambda module, args, result: seen.append(result.detach().clone()))
        model.lm_head.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        model.lm_head.register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].clone()))
        return model

    expected = train(make_hooked())
    of_plain = seen[:]
    seen.clear()
    assert all(map(same_bits, expected, train(remat.wrap(make_hooked(), head="tiles"))))
    assert len(seen) == len(of_plain) and all(map(same_bits, seen, of_plain))


class Scaled(transformers.GPT2LMHeadModel):
    """Overrides what happens to the logits, and the loss."""

    def forward(self, input_ids, labels):
        logits = self.lm_head(self.transformer(input_ids).last_hidden_state) * 0.5
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
        return transformers.modeling_outputs.CausalLMOutput(loss=loss, logits=logits)


def test_a_model_of_the_user_s():
    torch.manual_seed(0)
    model = Scaled(transformers.GPT2Config(**CAUSAL["GPT2"])).train()
    assert head_after(model).startswith("whole: aten::mul reads the logits")


def test_torch_compile_has_whole_logits():
    plain = make("GPT2")
    expected = train(plain, call=torch.compile(plain, backend="eager"))
    model = remat.wrap(make("GPT2"), head="tiles")
    found = train(model, call=torch.compile(model, backend="eager"))
    assert all(map(same_bits, expected, found))
    assert remat.session_of(model).report().head == "whole: the head is in code of torch.compile"


@needs_tiles
@pytest.mark.parametrize(
    "around",
    [
        lambda call: torch.compiler.disable(lambda **inputs: call(**inputs)),
        lambda call: functools.partial(checkpoint, call, use_reentrant=False),
    ],
    ids=["torch.compiler.disable()", "torch.utils.checkpoint"],
)
def test_calls_around_which_nothing_is_compiled_have_tiles(around):
    plain = make("GPT2")
    expected = train(plain, call=around(plain))
    model = remat.wrap(make("GPT2"), head="tiles")
    found = train(model, call=around(model))
    assert all(map(same_bits, expected, found))
    assert remat.session_of(model).report().head.startswith("tiles of ")


@needs_tiles
def test_logits_are_refused_when_the_optimizer_has_changed_the_weights():
    model = remat.wrap(make("GPT2"), head="tiles")
    tokens = torch.randint(3, WORDS, (4, 70))
    outputs = model(input_ids=tokens, labels=tokens)
    outputs.loss.backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    with pytest.raises(remat.Error, match="read outputs.logits before the optimizer's step"):
        outputs.logits.argmax()
    train(model)


def interrupted(model):
    """A call of the head ends without the hooks after it."""

    def interrupt(module, args):
        raise KeyboardInterrupt

    handle = model.lm_head.register_forward_pre_hook(interrupt)
    tokens = torch.randint(3, WORDS, (4, 70))
    with pytest.raises(KeyboardInterrupt):
        model(input_ids=tokens, labels=tokens)
    handle.remove()
    assert torch._C._len_torch_dispatch_stack() == 1
    return tokens


def test_an_interrupt_in_the_head_leaves_no_mode():
    model = remat.wrap(make("GPT2"), head="tiles")
    interrupted(model)
    weight = torch.randn(300, 40, requires_grad=True)
    assert type(nn.functional.linear(torch.randn(300, 40), weight)) is torch.Tensor
    assert all(map(same_bits, train(make("GPT2")), train(model)))
    assert torch._C._len_torch_dispatch_stack() == 0


class Counting(TorchDispatchMode):
    """Of operators."""

    calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls += 1
        return function(*args, **(kwargs or {}))


def test_an_interrupt_in_the_head_leaves_other_modes_where_they_are():
    model = remat.wrap(make("GPT2"), head="tiles")
    tokens = interrupted(model)
    with Counting() as mode:
        model(input_ids=tokens, labels=tokens).loss.backward()
        before = mode.calls
        torch.ones(3).add(1)
        assert mode.calls > before and torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1) is mode
    assert all(map(same_bits, train(make("GPT2")), train(remat.wrap(make("GPT2"), head="tiles"))))
    assert torch._C._len_torch_dispatch_stack() == 0


def test_an_interrupt_in_the_head_is_over_when_the_model_is_unwrapped():
    model = remat.wrap(make("GPT2"), head="tiles")
    interrupted(model)
    remat.unwrap(model)
    assert torch._C._len_torch_dispatch_stack() == 0


def test_an_interrupt_in_the_head_keeps_no_model():
    model = remat.wrap(make("GPT2"), head="tiles")
    interrupted(model)
    gone = weakref.ref(model.lm_head)
    del model
    gc.collect()
    assert gone() is None
    train(remat.wrap(make("GPT2"), head="tiles"), steps=1)
    assert torch._C._len_torch_dispatch_stack() == 0


class Doubling(TorchDispatchMode):
    """Of products."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) else result


@pytest.mark.parametrize("budget", [None, "90%"])
def test_modes_of_the_user_see_the_head(budget):
    def doubled(model):
        def call(**inputs):
            with Doubling():
                return model(**inputs)

        return train(model, 3, call=call)

    expected = doubled(make("GPT2"))
    assert all(map(same_bits, expected, doubled(remat.wrap(make("GPT2"), budget, head="tiles"))))


def test_unknown_words_are_refused():
    for call in (remat.wrap, remat.enable):
        with pytest.raises(remat.Error, match=rf'\[{call.__name__}\] head=\'tile\' is unknown; use "auto"'):
            call(make("GPT2"), head="tile")

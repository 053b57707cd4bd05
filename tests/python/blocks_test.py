"""remat.enable: blocks whose saved values are dropped, in plain models and behind Hugging Face's switches."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref

import pytest
import torch
from compare import blocks, same_bits
from enabled import dropped, same_as, train
from torch import nn

import remat
from remat import _C


def tiny(name="GPT2LMHeadModel", **options):
    transformers = pytest.importorskip("transformers")
    options = dict(vocab_size=50, n_embd=32, n_layer=3, n_head=4, n_positions=32) | options
    torch.manual_seed(5)
    model_class = getattr(transformers, name)
    return model_class(model_class.config_class(**options)).train()


def train_on_ids(model, **options):
    ids = torch.arange(64).reshape(4, 16) % 50
    model(input_ids=ids, labels=ids, **options).loss.backward()


def test_blocks_of_lists_are_found():
    model = nn.ModuleDict({"stem": nn.Sequential(nn.Linear(8, 8), nn.GELU()), "body": blocks(4)})
    assert remat.find_blocks(model) == list(model["body"])
    stages = nn.ModuleList([blocks(2), blocks(3)])
    assert remat.find_blocks(stages) == [*stages[0], *stages[1]]
    assert remat.find_blocks(nn.Linear(3, 3)) == []


def test_an_enabled_model_drops_and_has_the_same_bits():
    plain = blocks(norm=True)
    ours = copy.deepcopy(plain)
    assert remat.enable(ours) is ours
    same_as(plain, ours, train)
    assert dropped(plain, train) == 0
    assert dropped(ours, train) >= 6
    remat.disable(ours)
    assert dropped(ours, train) == 0


def test_enabling_twice_is_enabling_once_on_the_blocks_named_last():
    model = blocks()
    all_of_them = dropped(remat.enable(remat.enable(model)), train)
    assert sum(len(module._forward_hooks) for module in model.modules()) == 6
    assert 0 < dropped(remat.enable(model, blocks=iter([model[0]])), train) < all_of_them
    assert sum(len(module._forward_hooks) for module in model.modules()) == 1


def test_what_cannot_be_enabled_is_an_error():
    with pytest.raises(remat.Error, match="no repeated blocks"):
        remat.enable(nn.Linear(3, 3))
    with pytest.raises(remat.Error, match="not a module of this"):
        remat.enable(blocks(), blocks=[nn.Linear(3, 3)])
    with pytest.raises(remat.Error, match="no torch.nn.Module"):
        remat.enable(lambda x: x)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_in_a_block_leaves_no_region_after_the_next_call(error):
    class Fails(nn.Module):
        fails = True

        def forward(self, x):
            if self.fails:
                raise error
            return x

    model = blocks(3)
    model[1].append(Fails())
    remat.enable(model)
    with pytest.raises(error):
        train(model)
    Fails.fails = False
    train(model)
    assert not _C.is_recording()


def test_a_block_that_calls_itself_has_regions_in_regions():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = blocks(1)

        def forward(self, x, again=True):
            return self.inner(self(x, again=False) if again else x)

    plain = nn.Sequential(Twice(), Twice())
    ours = remat.enable(copy.deepcopy(plain))
    same_as(plain, ours, train)
    assert not _C.is_recording()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_enabled_and_can_be_disabled(copied):
    original = remat.enable(tiny())
    expected = dropped(original, train_on_ids)
    other = copied(original)
    assert dropped(other, train_on_ids) == expected > 0
    other.activation_checkpointing_disable()  # of the copy, not of the original
    assert dropped(other, train_on_ids) == 0
    assert dropped(original, train_on_ids) == expected


def test_the_switches_of_hugging_face_lead_here():
    model = remat.enable(tiny())
    expected = dropped(model, train_on_ids)
    model.activation_checkpointing_disable()
    assert dropped(model, train_on_ids) == 0
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": True})
    assert not model.is_gradient_checkpointing
    assert dropped(model, train_on_ids) == expected > 0
    model.activation_checkpointing_enable(every_n_layers=3)
    one_block = dropped(model, train_on_ids)
    assert 0 < one_block < expected
    model.activation_checkpointing_enable()
    model.activation_checkpointing_enable(None, 3)  # by position, in Hugging Face's order
    assert dropped(model, train_on_ids) == one_block
    model.gradient_checkpointing_disable()
    model.gradient_checkpointing_enable()
    assert dropped(model, train_on_ids) == expected
    remat.disable(model)
    model.activation_checkpointing_enable()
    assert model.is_gradient_checkpointing  # theirs again


@pytest.mark.parametrize("switch", ["gradient_checkpointing", "activation_checkpointing"])
def test_of_what_a_switch_asks_for_and_does_not_get_there_is_a_warning(switch):
    model = remat.enable(tiny())
    expected = dropped(model, train_on_ids)
    enable = getattr(model, f"{switch}_enable")
    for asked in ({"offload": True}, {f"{switch}_kwargs": {"offload": True}}):
        with pytest.warns(UserWarning, match=r"\[enable\] offload=True has no effect"):
            enable(**asked)
    with pytest.warns(UserWarning, match=r"\[enable\] context_fn has no effect"):
        enable(**{f"{switch}_kwargs": {"context_fn": lambda: None}})
    with pytest.raises(TypeError, match="every_n_layer"):
        enable(every_n_layer=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        enable(offload=False, every_n_layers=1, **{f"{switch}_kwargs": {"use_reentrant": False}})
    assert dropped(model, train_on_ids) == expected


def test_peft_finds_the_argument_that_it_looks_for():
    peft = pytest.importorskip("peft")
    model = remat.enable(tiny())
    model.is_loaded_in_8bit = True  # it says so; the switch is all that matters here
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "not supported in this version of transformers"
        peft.prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": True})


@pytest.mark.parametrize("named", [lambda model: None, lambda model: model.transformer.h, lambda model: [model]])
@pytest.mark.parametrize("copied", [lambda it: it, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_an_enabled_model_is_freed_without_the_garbage_collector(named, copied):
    def parameter_of(prepare):
        model = prepare(tiny())
        return weakref.ref(next(model.parameters()))  # the model goes here

    gc.collect()
    gc.disable()
    try:
        assert parameter_of(copied)() is None  # plain models are freed
        assert parameter_of(lambda model: copied(remat.enable(model, named(model))))() is None
    finally:
        gc.enable()


def test_switches_turn_on_the_blocks_that_were_named():
    model = tiny()
    remat.enable(model, blocks=[model.transformer.h[1]])
    expected = dropped(model, train_on_ids)
    for ours in (model, copy.deepcopy(model)):
        ours.activation_checkpointing_disable()
        assert dropped(ours, train_on_ids) == 0
        ours.activation_checkpointing_enable()
        assert dropped(ours, train_on_ids) == expected > 0
        assert len(ours.transformer.h[1]._forward_hooks) == 1


def test_what_was_on_already_is_replaced():
    model = tiny()
    model.activation_checkpointing_enable()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        remat.enable(model)
    assert not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    assert dropped(model, train_on_ids) > 0


def test_a_cache_of_keys_and_values_may_stay():
    plain, ours = tiny(), remat.enable(tiny())
    same_as(plain, ours, lambda model: train_on_ids(model, use_cache=True))
    ids = torch.arange(16).reshape(1, 16)
    with torch.no_grad():
        assert ours.train()(input_ids=ids, use_cache=True).past_key_values.get_seq_length() == 16


@pytest.mark.parametrize("prepared", [remat.enable, lambda model: remat.wrap(model, budget="60%")])
def test_a_saved_model_is_a_plain_one(prepared, tmp_path):
    model = prepared(tiny())
    train_on_ids(model)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert all(same_bits(a, b) for a, b in zip(model.parameters(), loaded.parameters()))
    assert dropped(loaded.train(), train_on_ids) == 0


def test_layers_that_share_their_weights_are_blocks_when_named():
    transformers = pytest.importorskip("transformers")
    sizes = dict(vocab_size=50, embedding_size=16, hidden_size=32, intermediate_size=64)
    torch.manual_seed(5)
    config = transformers.AlbertConfig(**sizes, num_attention_heads=4, num_hidden_layers=3)
    plain = transformers.AlbertForMaskedLM(config).train()
    ours = copy.deepcopy(plain)
    with pytest.raises(remat.Error, match="name them"):
        remat.enable(ours)
    remat.enable(ours, blocks=ours.albert.encoder.albert_layer_groups)
    same_as(plain, ours, train_on_ids)
    assert dropped(ours, train_on_ids) > 0


def test_low_rank_adapters_over_a_frozen_base():
    peft = pytest.importorskip("peft")
    options = dict(r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True)
    config = peft.LoraConfig(task_type="CAUSAL_LM", **options)
    models = []
    for _ in range(3):
        base = tiny()
        torch.manual_seed(6)
        models.append(peft.get_peft_model(base, config).train())
    plain, enabled, wrapped = models
    remat.enable(enabled)
    same_as(plain, enabled, train_on_ids)
    assert dropped(enabled, train_on_ids) > 0
    enabled.activation_checkpointing_disable()  # PEFT hands it on to the base
    assert dropped(enabled, train_on_ids) == 0
    enabled.activation_checkpointing_enable()
    assert dropped(enabled, train_on_ids) > 0
    plain.zero_grad()
    remat.wrap(wrapped, budget="60%")
    same_as(plain, wrapped, train_on_ids, steps=4)
    assert remat.session_of(wrapped).report().plan is not None


class Block(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(width, width), nn.Softmax(-1))
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU())

    def forward(self, x):
        return x + self.mlp(x + self.attention(x))


def paths():
    torch.manual_seed(3)
    return nn.ModuleDict({"layers": nn.Sequential(*(Block() for _ in range(3)))})


def train_paths(model):
    train(model["layers"])


def test_policies_by_path():
    def dropped_by(policies):
        plain = paths()
        ours = remat.enable(copy.deepcopy(plain), policies=policies)
        same_as(plain, ours, train_paths)
        return dropped(ours, train_paths)

    whole = dropped_by({"layers.*": ()})
    assert whole >= 9
    assert dropped_by({"**": ()}) >= whole
    assert dropped_by({"layers.*": "all"}) == 0
    first = dropped_by({"layers.0": ()})
    assert 0 < first < whole / 2
    assert dropped_by({"layers.*": (), "layers.1": "all", "layers.2": "all"}) <= first, "the last pattern decides"
    assert dropped_by({"layers.1": "all", "layers.*": ()}) == whole
    without_attention = dropped_by({"layers.*": (), "layers.*.attention": "all"})
    assert 0 < without_attention < whole, "the innermost module decides"
    assert dropped_by({"layers.*": ["aten::_softmax", "aten::native_dropout"]}) < whole


def test_policies_stay_in_copies_files_and_switches(tmp_path):
    ours = remat.enable(paths(), policies={"layers.*": (), "layers.*.attention": "all"})
    count = dropped(ours, train_paths)
    assert dropped(copy.deepcopy(ours), train_paths) == count
    torch.save(ours, tmp_path / "model")
    assert dropped(torch.load(tmp_path / "model", weights_only=False), train_paths) == count
    model = remat.enable(tiny(), policies={"transformer.h.*": (), "transformer.h.*.attn": "all"})
    count = dropped(model, train_on_ids)
    assert 0 < count < dropped(remat.enable(tiny()), train_on_ids)
    model.gradient_checkpointing_disable()
    assert dropped(model, train_on_ids) == 0
    model.gradient_checkpointing_enable()
    assert dropped(model, train_on_ids) == count


def test_policies_for_no_module_are_refused():
    with pytest.raises(remat.Error, match=r'at "layer\.\*", there are layers'):
        remat.enable(paths(), policies={"layer.*": ()})
    with pytest.raises(remat.Error, match=r"\[enable\] 3 is no path"):
        remat.enable(paths(), policies={3: ()})
    with pytest.raises(remat.Error, match="give one of them"):
        remat.enable(model := paths(), blocks=[model["layers"][0]], policies={"layers.*": ()})
    with pytest.raises(remat.Error, match="no path is given"):
        remat.enable(paths(), policies={})
    with pytest.raises(remat.Error, match='keep is "most"'):
        remat.enable(paths(), policies={"layers.*": "most"})
    with pytest.raises(remat.Error, match=r"policies is a list; use a dict"):
        remat.enable(paths(), policies=["layers.*"])
    with pytest.raises(remat.Error, match='ModuleList at "layers" has no forward'):
        remat.enable(nn.ModuleDict({"layers": nn.ModuleList(paths()["layers"])}), policies={"layers": ()})
    inside_itself = paths()
    inside_itself["layers"][0].whole = inside_itself
    with pytest.raises(remat.Error, match="inside itself"):
        remat.enable(inside_itself, policies={"layers.*": ()})


def test_blocks_that_are_never_called_are_refused():
    pair = nn.ModuleList([Block(), nn.Sequential(nn.Linear(64, 64), nn.GELU())])
    model = nn.ModuleDict({"layers": nn.ModuleList(copy.deepcopy(pair) for _ in range(3))})
    for blocks_of_it in (None, model["layers"]):
        with pytest.raises(remat.Error, match="ModuleList has no forward"):
            remat.enable(model, blocks_of_it)
    remat.enable(model, [layer[0] for layer in model["layers"]])


@pytest.mark.parametrize("keep", ["most", ["aten::nonexistent"], [3], None, 5, remat.policy("all")])
def test_a_refused_policy_leaves_everything_as_it_was(keep):
    ours = remat.enable(paths(), policies={"layers.*": (), "layers.1": "all"})
    count = dropped(ours, train_paths)
    with pytest.raises(remat.Error):
        remat.enable(ours, policies={"layers.0": (), "layers.1": keep})
    assert dropped(ours, train_paths) == count
    model = tiny()
    model.gradient_checkpointing_enable()
    with pytest.raises(remat.Error):
        remat.enable(model, policies={"transformer.h.*": keep})
    assert model.is_gradient_checkpointing


def test_a_policy_that_can_be_read_once_is_for_all_modules():
    once = remat.enable(paths(), policies={"layers.*": (name for name in ["aten::_softmax", "aten::native_dropout"])})
    listed = remat.enable(paths(), policies={"layers.*": ["aten::_softmax", "aten::native_dropout"]})
    assert dropped(once, train_paths) == dropped(listed, train_paths)


def test_of_policies_every_nth_layer_counts_the_outermost_modules():
    model = remat.enable(tiny(), policies={"transformer.h.*": (), "transformer.h.*.attn": "all"})
    model.activation_checkpointing_enable(every_n_layers=2)
    count = dropped(model, train_on_ids)
    each_second = {f"transformer.h.{i}": () for i in range(0, len(model.transformer.h), 2)}
    assert count == dropped(
        remat.enable(tiny(), policies={**each_second, **{f"{path}.attn": "all" for path in each_second}}), train_on_ids
    )


def test_an_empty_block_stays_named():
    """Which is false, as a list without members is."""
    model = tiny()
    model.transformer.register_module("none", nn.Sequential())
    remat.enable(model, blocks=[model.transformer.none])
    model.gradient_checkpointing_disable()
    model.gradient_checkpointing_enable()
    assert len(model.transformer.none._forward_hooks) == 1

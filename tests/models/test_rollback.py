"""Taking tokens back: a cropped cache is one that never read them."""

import copy
import random

import pytest
import torch
from torch.testing import assert_close

import lrpe
from lrpe.errors import LrpeError
from lrpe.models import LrpeCache, LrpeForCausalLM
from tests.models.tiny import WIDTH, draw_ids, tiny

KINDS = (
    {},
    {"encoding": "selective", "decay": "gated"},
    {"encoding": "selective-free", "num_key_value_heads": 2},
    {"encoding": "fourier*unitary", "normalizer": "encoded"},
    {"encoding": "householder*permutation", "decay": None, "normalizer": "output"},
    {"encoding": "selective", "attention": "softmax", "decay": "gated"},
    {"encoding": "rope", "attention": "softmax", "decay": None},
    {"encoding": "per", "decay": None},
    {"convolution": 4, "output_gate": "silu", "encoding": "mamba3", "decay": "mamba3"},
    {"convolution": 3, "output_gate": "sigmoid", "attention": "softmax", "encoding": "rope", "decay": "gated"},
)
SCRIPTS = 100  # for each of the ten kinds
GREEDY = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0}


def one_layer(kind: dict):
    """A model in float32, by default of one layer, so that the vectors which it reads are those that a test passes."""
    model = tiny(LrpeForCausalLM, **{"num_hidden_layers": 1} | kind).float()
    for name, weight in model.named_parameters():
        if any(part in name for part in ("steps", "decay", "convolution")):  # a new one does not depend on the token
            weight.data.add_(0.1 * torch.randn_like(weight))
    return model


def draw_script(chance: random.Random, rollback: int) -> list:
    """Draw reads (x, mask), and counts of tokens to take back that stay within reach of ``rollback``."""
    script, seen, furthest = [], 0, 0
    for _ in range(chance.randint(2, 5)):
        n = chance.choice([1, 1, 2, 3, 5])
        script.append((torch.randn(2, n, WIDTH), torch.rand(2, n) > 0.3 if chance.random() < 0.4 else None))
        seen += n
        furthest = max(seen, furthest)
        reach = seen - max(furthest - rollback, 0)
        if reach > 0 and chance.random() < 0.7:
            script.append(chance.randint(1, reach))
            seen -= script[-1]
    return [*script, (torch.randn(2, 2, WIDTH), None)]


def without_what_is_taken_back(script: list) -> list:
    """Return the reads of a script, without the tokens that it takes back."""
    reads: list = []
    for action in script:
        if isinstance(action, tuple):
            reads.append(action)
            continue
        while action:
            x, mask = reads.pop()
            kept = max(x.shape[1] - action, 0)
            action -= x.shape[1] - kept
            if kept:
                reads.append((x[:, :kept], None if mask is None else mask[:, :kept]))
    return reads


def follow(model, script: list, rollback: int) -> list[torch.Tensor]:
    """Follow a script; return its last output and the tensors of the state after it."""
    cache, out = LrpeCache(1, room=8, rollback=rollback), torch.empty(0)
    for action in script:
        if isinstance(action, tuple):
            x, mask = action
            out = model.model(inputs_embeds=x, attention_mask=mask, past_key_values=cache).last_hidden_state
        else:
            cache.crop(-action)
    state = cache.states[0]
    assert state is not None
    tensors = state if isinstance(state, tuple) else state.copy()
    return [out, *(tensor for tensor in tensors if tensor is not None)]


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tokens_taken_back_leave_no_bit_behind(kind):
    chance, model = random.Random(0), one_layer(kind)
    for _ in range(SCRIPTS):
        rollback = chance.randint(1, 6)
        script = draw_script(chance, rollback)
        found, expected = follow(model, script, rollback), follow(model, without_what_is_taken_back(script), 0)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True)), script
    if kind.get("attention") != "softmax" and lrpe.engines.status()["native"] == "ready":
        ran = lrpe.engines.last()
        assert ran is not None
        assert ran.engine == "native"  # the laws of the torch engine are those of every machine without it


@torch.no_grad()
def test_tokens_taken_back_leave_no_bit_behind_in_the_torch_engine():
    chance, model = random.Random(1), one_layer(KINDS[0])
    with lrpe.engines.use("torch"):
        for _ in range(20):
            script = draw_script(chance, 4)
            found, expected = follow(model, script, 4), follow(model, without_what_is_taken_back(script), 0)
            assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True)), script


@torch.no_grad()
@pytest.mark.parametrize("attention", ["linear", ["linear", "softmax"]])
def test_a_cropped_cache_of_a_model_continues_as_if_it_had_not_read_the_rest(attention):
    model, ids = tiny(LrpeForCausalLM, "selective", attention=attention), draw_ids(2, 12)
    cache = LrpeCache(2, rollback=5)
    for part in ids.split([6, 5, 1], 1):
        model(part, past_key_values=cache)
    cache.crop(-2)
    cache.crop(8)  # a positive number is what to keep, as in transformers 5.0
    cache.batch_select_indices(torch.tensor([1, 0, 0]))
    assert cache.get_seq_length() == 8
    found = model(ids[[1, 0, 0], 8:], past_key_values=cache).logits
    assert_close(found, model(ids).logits[[1, 0, 0], 8:])


@torch.no_grad()
def test_a_copy_of_a_cache_is_cropped_alone():
    model, ids = tiny(LrpeForCausalLM, attention=["linear", "softmax"]), draw_ids(1, 9)
    cache = LrpeCache(2, rollback=3)
    model(ids[:, :8], past_key_values=cache)
    other = copy.deepcopy(cache)
    other.crop(-3)
    assert_close(model(ids[:, 5:], past_key_values=other).logits, model(ids).logits[:, 5:])
    assert_close(model(ids[:, 8:], past_key_values=cache).logits, model(ids).logits[:, 8:])


@torch.no_grad()
def test_a_crop_beyond_what_is_kept_is_refused_and_changes_nothing():
    model, ids = tiny(LrpeForCausalLM), draw_ids(1, 9)
    cache = LrpeCache(2, rollback=3)
    for token in ids[:, :8].split(1, 1):
        model(token, past_key_values=cache)
    with pytest.raises(LrpeError, match=r"at most 3 tokens .* got 4\. Make it with LrpeCache\(layers, rollback=4\)"):
        cache.crop(-4)
    assert_close(model(ids[:, 8:], past_key_values=cache).logits, model(ids).logits[:, 8:])
    with pytest.raises(LrpeError, match="rollback"):
        LrpeCache(2, rollback=-1)


@pytest.mark.parametrize(
    "kind",
    [{}, {"attention": "linear+softmax"}, {"encoding": "selective", "decay": "gated", "convolution": 4}],
    ids=str,
)
@pytest.mark.parametrize("mode", ["lookup", "other model", "same model"])
def test_assisted_generation_gives_the_tokens_of_greedy_search(mode, kind):
    model, ids = one_layer({"num_hidden_layers": 2} | kind).double(), draw_ids(1, 8).repeat(1, 2)
    other = tiny(LrpeForCausalLM, seed=1)
    helps = {
        "lookup": {"prompt_lookup_num_tokens": 4},
        "other model": {"assistant_model": other},
        "same model": {"assistant_model": model},
    }
    assert torch.equal(model.generate(ids, **helps[mode], **GREEDY), model.generate(ids, **GREEDY))

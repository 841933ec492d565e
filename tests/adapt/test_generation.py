"""Generation from the caches of replaced models."""

import pytest
import torch
from transformers import DynamicCache, StaticCache

import lrpe
from lrpe.adapt import replace_attention, replace_rotary
from lrpe.models.cache import StateLayer
from tests.adapt.models import FAMILIES, apart, few, logits, make, padded, text


def generate(model, tokens, mask, **kwargs):
    made = model.generate(tokens, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, do_sample=False, **kwargs)
    return made[:, tokens.shape[1] :]


@few
@pytest.mark.parametrize("swap", [replace_rotary, lambda model: replace_attention(model, "softmax")])
@pytest.mark.parametrize("beams", [1, 3])
def test_a_model_that_computes_what_it_did_generates_what_it_did(name, swap, beams):
    model = make(name)
    tokens, mask = padded(text(), 4, 0)
    mask[1, 2:] = 1
    tokens[1, 2:4] = 7
    before = generate(model, tokens, mask, num_beams=beams)
    assert torch.equal(generate(swap(model), tokens, mask, num_beams=beams), before)


@pytest.mark.parametrize("name", [*FAMILIES, "gpt-2"])
def test_every_family_generates_what_it_did_and_from_a_cache_what_it_does_without(name):
    tokens, mask = padded(text(), 4, 0)
    mask[1, 2:] = 1
    tokens[1, 2:4] = 7
    if name in FAMILIES:
        model = make(name)
        before = generate(model, tokens, mask)
        assert torch.equal(generate(replace_rotary(model), tokens, mask), before)
    model = replace_attention(make(name), "linear", decay=lrpe.spread_decay(key_heads(make(name))))
    assert torch.equal(generate(model, tokens, mask), generate(model, tokens, mask, use_cache=False))


@pytest.mark.parametrize("name", ["llama", "gemma 2", "gpt-2", "smollm3"])
@pytest.mark.parametrize("layers", [[0], [1]])
def test_a_hybrid_generates_from_a_cache_what_it_does_without(name, layers):
    model = replace_attention(make(name), "linear", layers=layers, decay=lrpe.spread_decay(key_heads(make(name))))
    tokens, mask = padded(text(), 4, 0)
    mask[1, 2:] = 1
    tokens[1, 2:4] = 7
    made = generate(model, tokens, mask, num_beams=2)
    assert torch.equal(made, generate(model, tokens, mask, num_beams=2, use_cache=False))
    kinds = [isinstance(layer, StateLayer) for layer in model(tokens, use_cache=True).past_key_values.layers]
    assert kinds == [0 in layers, 1 in layers]


@pytest.mark.parametrize("implementation", ["static", "offloaded", "quantized"])
def test_a_cache_that_a_replaced_attention_would_not_use_is_refused(implementation):
    model = replace_attention(make("llama"))
    with pytest.raises(lrpe.LrpeError, match=f"got cache_implementation='{implementation}'"):
        generate(model, text(), None, cache_implementation=implementation)
    cache = StaticCache(config=model.config, max_cache_len=32)
    with pytest.raises(lrpe.LrpeError, match="layer 0 of this cache is a StaticLayer"):
        logits(model, text(), past_key_values=cache)
    with pytest.raises(lrpe.LrpeError, match="DynamicLayer, offloaded"):
        logits(model, text(), past_key_values=DynamicCache(config=model.config, offloading=True))


def test_a_static_cache_serves_a_model_whose_encoding_alone_was_replaced():
    model = make("llama")
    before = generate(model, text(), None, cache_implementation="static", disable_compile=True)
    after = generate(replace_rotary(model), text(), None, cache_implementation="static", disable_compile=True)
    assert torch.equal(after, before)


@few
@pytest.mark.parametrize(
    "swap",
    [
        lambda model: replace_rotary(model, "type1"),
        lambda model: replace_rotary(model, "type3"),
        lambda model: replace_attention(model, "linear", "type1", normalizer="output-rms-head"),
        lambda model: replace_attention(model, "linear", decay=lrpe.spread_decay(key_heads(model))),
        lambda model: replace_attention(model, "linear", "per", feature_map="relu+1e-3", decay=None),
    ],
    ids=["rotary type1", "rotary type3", "linear type1", "linear decay", "linear per"],
)
@pytest.mark.parametrize("beams", [1, 3])
def test_generation_from_a_cache_is_generation_without_one(name, swap, beams):
    model = swap(make(name))
    tokens, mask = padded(text(), 4, 0)
    mask[1, 2:] = 1
    tokens[1, 2:4] = 7
    whole = generate(model, tokens, mask, num_beams=beams, use_cache=False)
    assert torch.equal(generate(model, tokens, mask, num_beams=beams), whole)


def key_heads(model):
    return getattr(model.config, "num_key_value_heads", model.config.num_attention_heads)


def test_the_cache_of_a_linear_model_holds_states_of_one_size_for_life():
    model = replace_attention(make("llama"))
    with torch.no_grad():
        cache = model(text(), use_cache=True).past_key_values
        short = [layer.state.S.shape for layer in cache.layers]
        longer = model(text(length=20), past_key_values=cache, use_cache=True).past_key_values
    assert all(isinstance(layer, StateLayer) for layer in longer.layers)
    assert [layer.state.S.shape for layer in longer.layers] == short
    assert longer.get_seq_length() == 32


def test_the_rows_of_a_cache_can_be_repeated_chosen_and_forgotten_but_not_its_last_tokens():
    model = replace_attention(make("llama"))
    tokens = text()
    with torch.no_grad():
        cache = model(tokens, use_cache=True).past_key_values
        cache.batch_repeat_interleave(2)
        cache.batch_select_indices(torch.tensor([3, 0]))
        after = model(tokens[:, :3], past_key_values=cache).logits
    assert apart(after, logits(model, torch.cat([tokens.flip(0), tokens[:, :3]], 1))[:, -3:]) < 1e-5
    with pytest.raises(lrpe.LrpeError, match="cannot remove tokens"):
        cache.crop(-1)
    cache.reset()
    assert cache.get_seq_length() == 0


def test_a_cache_of_another_model_is_refused():
    model = make("llama")
    with torch.no_grad():
        cache = model(text(), use_cache=True).past_key_values
    with pytest.raises(lrpe.LrpeError, match="keys and values of another attention"):
        logits(replace_attention(model), text(), past_key_values=cache)

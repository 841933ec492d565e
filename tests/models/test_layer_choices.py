"""Hybrids by pattern, and models whose layers have an output gate and a convolution."""

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from lrpe import LrpeError
from lrpe.models import LrpeConfig, LrpeForCausalLM, LrpeForMaskedLM
from lrpe.models.layer_choices import read_pattern
from tests.models.test_generation import generate, left_padded
from tests.models.tiny import IDS, assert_same_tensors, draw_ids, logits, perturbed, tiny, tiny_config

EXTRAS = {"output_gate": "silu", "convolution": 4, "convolution_activation": "silu"}
HYBRID = {"attention": "linear+softmax", **EXTRAS}


def away(cls: type = LrpeForCausalLM, **changes):
    """A model whose convolutions are away from the identity, where they start."""
    model = tiny(cls, **HYBRID | changes)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("convolution.weight"):
                weight += 0.5 * torch.randn(weight.shape, generator=generator)
    return model


@pytest.mark.parametrize(
    ("pattern", "kinds"),
    [
        ("linear", "lllllll"),
        ("softmax*3", "sssssss"),
        ("linear*9", "lllllll"),
        ("linear*3+softmax", "lllslll"),
        (" softmax + linear * 2 ", "sllslls"),
        ("linear+softmax*2+linear*4", "lssllll"),
    ],
)
def test_a_pattern_is_repeated_over_the_layers(pattern, kinds):
    assert "".join(kind[0] for kind in read_pattern(pattern, layers=7)) == kinds


@pytest.mark.parametrize(
    "pattern", ["", "+", "linear*", "linear*0+softmax", "linear**2", "3*linear", "sofmax*2", "a" * 999]
)
def test_what_is_no_pattern_is_refused_with_the_grammar(pattern):
    with pytest.raises(LrpeError, match=r"no kind of attention named .*such as 'linear\*3\+softmax'"):
        LrpeConfig(attention=pattern)


def test_a_pattern_longer_than_the_model_is_refused():
    with pytest.raises(LrpeError, match=r"describes 4 layers.*got num_hidden_layers=3"):
        LrpeConfig(attention="linear*3+softmax", num_hidden_layers=3)


def test_a_pattern_builds_the_layers_of_its_list():
    pattern, listed = (tiny(LrpeForCausalLM, attention=kinds) for kinds in ("linear+softmax", ["linear", "softmax"]))
    assert_same_tensors(pattern, listed)
    assert [type(block.attention).__name__ for block in pattern.model.layers] == ["LinearAttention", "SoftmaxAttention"]
    assert torch.equal(logits(pattern), logits(listed))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output_gate": "relu"}, "no output_gate named 'relu'"),
        ({"output_gate": True}, "output_gate must be one of None, 'sigmoid', 'silu'"),
        ({"convolution": 1}, "convolution must be a whole number of 2 or more"),
        (
            {"convolution": None, "convolution_activation": "silu"},
            "got convolution_activation='silu' and convolution=None",
        ),
        (
            {"convolution": 4, "position_layout": "grid", "image_size": 32, "decay": None},
            "convolution needs position_l",
        ),
    ],
)
def test_choices_that_do_not_exist_are_refused(changes, message):
    with pytest.raises(LrpeError, match=message):
        LrpeConfig(**changes)


@pytest.mark.parametrize("attention", ["linear", "softmax", "linear+softmax"])
def test_beams_and_padding_are_those_of_a_computation_without_cache(attention):
    model, (ids, mask) = away(attention=attention), left_padded((2, 7, 5), 7)
    for beams in ({}, {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.5}):
        found = generate(model, ids, mask, **beams)
        assert torch.equal(found, generate(model, ids, mask, use_cache=False, **beams))
    alone = generate(model, ids[2:, 2:])
    assert torch.equal(generate(model, ids, mask)[2:, 2:], alone)


def test_a_cache_of_linear_layers_does_not_grow_with_the_text():
    model = away(attention="linear")
    with torch.no_grad():
        sizes = {model(draw_ids(2, n), use_cache=True).past_key_values.nbytes for n in (1, 3, 40)}
    assert len(sizes) == 1


def test_a_masked_language_model_reads_to_both_sides_and_past_padding():
    model, (ids, mask) = away(LrpeForMaskedLM), left_padded((7, 4), 7)
    y = model(ids, attention_mask=mask).logits
    assert_close(y[1, 3:], model(ids[1:, 3:]).logits[0])
    changed = ids.index_fill(1, torch.tensor([6]), 1)
    assert not torch.equal(model(changed, attention_mask=mask).logits[:, 5], y[:, 5])


def test_a_saved_model_is_loaded_with_its_gates_and_convolutions(tmp_path):
    model = perturbed(**HYBRID)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert again.config.attention == "linear+softmax"
    assert_same_tensors(model, again)
    assert torch.equal(logits(again), logits(model))


def test_a_convolution_that_is_added_on_loading_changes_nothing_at_first(tmp_path):
    model = perturbed()
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path, convolution=4).eval()
    assert again.model.layers[1].attention.convolution.weight.sum(1).eq(1).all()
    assert_close(logits(again), logits(model))


def test_weights_of_gates_and_convolutions_are_counted():
    counts = [tiny_config(**extras).count_weights() for extras in ({}, EXTRAS)]
    models = [tiny(LrpeForCausalLM, **extras) for extras in ({}, EXTRAS)]
    sizes = [sum(parameter.numel() for parameter in model.parameters()) for model in models]
    assert counts[1] - counts[0] == sizes[1] - sizes[0]


def test_gradients_reach_every_gate_and_convolution():
    model = away().train()
    model(IDS, labels=IDS).loss.backward()
    found = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert not found

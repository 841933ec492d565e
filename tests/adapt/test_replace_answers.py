"""A replaced part computes what the model did, or what linear attention gives; wherever its tokens stand."""

import pytest
import torch
from torch.testing import assert_close
from transformers import MistralConfig, MistralForCausalLM

import lrpe
from lrpe.adapt import replace_attention, replace_rotary
from lrpe.attention import Decay, tnl_decay
from tests.adapt.models import (
    DECODERS,
    GROUPED,
    apart,
    each_model,
    each_rotary,
    each_unbounded,
    gemma2,
    logits,
    make,
    padded,
    text,
)


@each_rotary
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_rotary_encoding_is_type_2_with_the_angles_of_the_model_in_its_layout(name, implementation):
    model = make(name)
    if not name.startswith("gemma 2"):
        model.set_attn_implementation(implementation)
    tokens, mask = padded(text(), 3, 0)
    before = logits(model, tokens, mask)[:, 3:]
    assert before.std() > 0.5
    assert apart(logits(replace_rotary(model), tokens, mask)[:, 3:], before) < 1e-5


@each_unbounded
def test_softmax_attention_of_ours_computes_what_the_model_did(name):
    model = make(name)
    tokens, mask = padded(text(), 0, 3)
    before = logits(model, tokens, mask)[:, :-3]
    assert apart(logits(replace_attention(model, "softmax"), tokens, mask)[:, :-3], before) < 1e-5


@each_model
@pytest.mark.parametrize(("left", "right"), [(0, 5), (5, 0)])
def test_padding_on_either_side_gives_the_unpadded_answer_of_linear_attention(name, left, right):
    tokens = text()
    model = replace_attention(make(name), "linear", encoding="type2")
    wide, mask = padded(tokens, left, right)
    places = (
        {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)} if name in ("bert", "gpt-2") else {}
    )  # its positions are absolute
    answer = logits(model, wide, mask, **places)[:, left : left + tokens.shape[1]]
    assert apart(answer, logits(model, tokens)) < 1e-5


def test_transnormerllms_decay_depends_on_the_layer():
    model = replace_attention(make("llama"), "linear", decay="tnl")
    decays = [module.rates().float() for module in model.modules() if isinstance(module, Decay)]
    expected = [tnl_decay(len(rates), layer, len(decays)) for layer, rates in enumerate(decays)]
    assert len(decays) > 1
    assert_close(torch.stack(decays), torch.tensor(expected))


@each_model
def test_a_decoder_sees_no_token_after_its_own_and_an_encoder_sees_all(name):
    model = replace_attention(make(name), "linear")
    tokens = text()
    changed = torch.cat([tokens[:, :-1], (tokens[:, -1:] + 1).clamp(max=60)], 1)
    early = apart(logits(model, changed)[:, :6], logits(model, tokens)[:, :6])
    assert (early == 0) if name in DECODERS else (early > 1e-4)


@pytest.mark.parametrize("swap", [replace_rotary, replace_attention])
def test_shifting_all_positions_changes_nothing(swap):
    model = swap(make("gpt-neox"))
    place = torch.arange(12)[None]
    assert apart(logits(model, text(), position_ids=place + 1000), logits(model, text(), position_ids=place)) < 1e-5


@pytest.mark.parametrize("swap", [replace_rotary, replace_attention, lambda model: replace_attention(model, "softmax")])
def test_packed_sequences_are_told_by_positions_that_start_anew(swap):
    model = swap(make("llama"))
    place = torch.cat([torch.arange(5), torch.arange(7)])[None]
    packed = logits(model, text(rows=1), position_ids=place, use_cache=False)
    alone = [logits(model, part, use_cache=False) for part in text(rows=1).split([5, 7], 1)]
    assert apart(packed, torch.cat(alone, 1)) < 1e-5


def test_a_gap_in_the_positions_is_read_as_the_model_reads_it():
    model, place = make("llama"), torch.cat([torch.arange(5), torch.arange(9, 16)])[None]
    before = logits(model, text(rows=1), position_ids=place, use_cache=False)
    ours = logits(replace_attention(model, "softmax"), text(rows=1), position_ids=place, use_cache=False)
    assert apart(ours, before) < 1e-5


def test_a_window_stays_when_the_rotary_encoding_alone_is_replaced():
    model = MistralForCausalLM(MistralConfig(**GROUPED, sliding_window=4)).eval()
    before = logits(model, text())
    with pytest.raises(lrpe.LrpeError, match="window of 4 tokens"):
        replace_attention(model, "softmax")
    with pytest.raises(lrpe.LrpeError, match=r"must be None for our softmax attention; got 5\.0"):
        replace_attention(gemma2(layer_types=["full_attention"] * 2), "softmax")
    assert apart(logits(replace_rotary(model), text()), before) < 1e-5


def test_attention_weights_are_recorded_as_before():
    model = make("gpt-neox")
    model.set_attn_implementation("eager")
    before = model(text(), output_attentions=True).attentions
    after = replace_rotary(model)(text(), output_attentions=True).attentions
    assert len(after) == 2
    assert all(apart(a, b) < 1e-5 for a, b in zip(after, before, strict=True))

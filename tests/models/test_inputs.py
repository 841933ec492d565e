"""What a caller says of its tokens is obeyed or refused, and never half understood."""

import copy

import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.models import (
    LrpeCache,
    LrpeForCausalLM,
    LrpeForMaskedLM,
    LrpeForPairClassification,
    LrpeForSequenceClassification,
    LrpeModel,
)
from lrpe.models.block import BatchNorm
from lrpe.models.classification import pool
from lrpe.models.inputs import of_new_tokens, packed_by
from tests.models.tiny import draw_ids, tiny, tiny_config


def test_a_configuration_serves_several_models_and_stays_as_it_is():
    config = tiny_config()
    assert LrpeForCausalLM(config).config.causal is True
    assert LrpeForMaskedLM(config).config.causal is False
    assert LrpeForSequenceClassification(config).config.causal is False
    assert config.causal is None


def test_a_trunk_over_patches_sees_both_ways_unless_it_is_told():
    assert tiny(LrpeModel, image_size=8, patch_size=4, decay=None).config.causal is False
    assert tiny(LrpeModel).config.causal is True


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_positions_that_start_anew_pack_sequences_in_training_and_in_evaluation(attention, training):
    model, parts = tiny(LrpeForCausalLM, attention=attention).train(training), (draw_ids(1, 5), draw_ids(1, 7, seed=1))
    places = torch.cat([torch.arange(part.shape[1]) for part in parts])[None]
    packed = model(torch.cat(parts, 1), position_ids=places).logits
    assert_close(packed, torch.cat([model(part).logits for part in parts], 1))


PACKED = {
    "linear": {"decay": None},
    "linear with a decay": {},
    "softmax": {"attention": "softmax", "decay": None},
    "softmax with a decay": {"attention": "softmax"},
}


@pytest.mark.parametrize("cls", [LrpeForCausalLM, LrpeForMaskedLM])
@pytest.mark.parametrize("choice", PACKED)
def test_positions_that_start_anew_pack_beside_a_mask_too(choice, cls):
    model = tiny(cls, **PACKED[choice])
    parts = [draw_ids(1, n, seed=n) for n in (5, 1, 7)]
    places = torch.cat([torch.arange(part.shape[1]) for part in parts])[None]
    alone = torch.cat([model(part).logits for part in parts], 1)
    whole = torch.cat(parts, 1)
    assert_close(model(whole, torch.ones_like(whole), places).logits, alone)
    spread = torch.tensor([[3, 4, 5, 6, 7, 10, 12, 13, 14, 15, 16, 17, 18]])  # with padding before, between and after
    empty = torch.zeros(1, 20, dtype=torch.long)
    ids, mask, places = (empty.scatter(1, spread, x) for x in (whole, torch.ones_like(whole), places))
    assert_close(model(ids, mask, places).logits[:, spread[0]], alone)


def test_sequence_numbers_follow_from_positions_and_mask():
    def numbers(positions, mask=None):
        found = packed_by(torch.tensor(positions), None if mask is None else torch.tensor(mask).bool())
        return None if found is None else found.tolist()

    assert packed_by(None, None) is None
    assert numbers([0, 1, 2]) is numbers([[0, 1, 5]]) is numbers([[0], [0]]) is None
    assert numbers([0, 1, 0, 1]) == [[0, 0, 1, 1]]
    assert numbers([[0, 1, 1, 1], [3, 4, 5, 6]]) == [[0, 0, 1, 2], [0, 0, 0, 0]]
    assert numbers([[0, 0, 1, 0]], [[1, 1, 1, 1]]) == [[0, 1, 1, 2]]
    assert numbers([[9, 0, 1, 9]], [[0, 1, 1, 0]]) is None  # what padding stands at means nothing
    assert numbers([[0, 9, 1, 9, 0]], [[1, 0, 1, 0, 1]]) == [[0, 0, 0, 0, 1]]
    assert packed_by(torch.zeros(1, 0, dtype=torch.long), None) is None
    assert packed_by(torch.zeros(1, 3, 2, dtype=torch.long), None) is None


def test_a_mask_of_real_tokens_alone_is_none():
    assert of_new_tokens(None, 3, 0) is None
    assert of_new_tokens(torch.ones(2, 3), 3, 0) is None
    assert of_new_tokens(torch.tensor([[0, 1, 1]]), 2, 1) is None  # the padding was before
    assert of_new_tokens(torch.tensor([[1, 1, 0]]), 2, 1).tolist() == [[True, False]]


def test_left_padding_with_positions_of_its_own_is_one_sequence_with_a_cache():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 6)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    places = (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1)  # as generate() numbers them
    output = model(ids, mask, places)
    assert output.past_key_values is not None
    assert_close(output.logits, model(ids, mask).logits)


def test_a_mask_of_another_length_or_kind_is_refused():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 6)
    with pytest.raises(LrpeError, match=r"attention_mask must be \(batch, n\) with n=6; got \(2, 9\)"):
        model(ids, attention_mask=torch.ones(2, 9))
    with pytest.raises(LrpeError, match="got negative values"):
        model(ids, attention_mask=torch.zeros(2, 6).index_fill(1, torch.tensor([5]), -1e9))
    cache = model(ids).past_key_values
    with pytest.raises(LrpeError, match="with n=6 or 12 "):
        model(ids, attention_mask=torch.ones(2, 9), past_key_values=cache)


def test_a_cache_is_refused_where_blocks_are_computed_twice():
    model, ids = tiny(LrpeForCausalLM).train(), draw_ids(1, 6)
    model.gradient_checkpointing_enable()
    with pytest.raises(LrpeError, match="Gradient checkpointing runs blocks twice"):
        model(ids, past_key_values=LrpeCache(2))


def test_a_cache_of_another_attention_is_refused():
    ids = draw_ids(1, 6)
    cache = tiny(LrpeForCausalLM)(ids).past_key_values
    with pytest.raises(LrpeError, match="state must be a KeyValueState or a ReservedState; got DecodingState"):
        tiny(LrpeForCausalLM, attention="softmax")(ids, past_key_values=cache)


@pytest.mark.parametrize("attention", ["linear", "softmax", ["linear", "softmax"]])
def test_a_conversation_of_any_attention_goes_on_beyond_what_was_reserved(attention):
    model, first, answer = tiny(LrpeForCausalLM, attention=attention), draw_ids(1, 6), draw_ids(1, 9, seed=1)
    greedy = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    turn = model.generate(first, return_dict_in_generate=True, **greedy)
    history = torch.cat([turn.sequences, answer], 1)
    assert torch.equal(
        model.generate(history, past_key_values=turn.past_key_values, **greedy), model.generate(history, **greedy)
    )


def test_a_prefix_is_read_once_for_several_beams():
    model, ids = tiny(LrpeForCausalLM), draw_ids(1, 8)
    beams = {"num_beams": 3, "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad():
        cache = copy.deepcopy(model(ids[:, :-1], use_cache=True).past_key_values)
    cache.batch_repeat_interleave(3)
    assert torch.equal(model.generate(ids, past_key_values=cache, **beams), model.generate(ids, **beams))


def test_a_cache_with_room_has_gradients():
    model, ids = tiny(LrpeForCausalLM, attention="softmax").train(), draw_ids(1, 6)
    cache = LrpeCache(2, room=10)
    model(ids[:, :4], past_key_values=cache)
    model(ids[:, 4:], past_key_values=cache).logits.sum().backward()
    assert model.model.embed_tokens.weight.grad is not None


def test_token_types_and_wide_embeddings_are_named():
    model, ids = tiny(LrpeForSequenceClassification), draw_ids(1, 4)
    model(ids, token_type_ids=torch.zeros_like(ids))
    with pytest.raises(LrpeError, match="no token types"):
        model(ids, token_type_ids=torch.ones_like(ids))
    with pytest.raises(LrpeError, match=r"inputs_embeds must be \(batch, n, 32\); got \(1, 4, 31\)"):
        model(inputs_embeds=torch.zeros(1, 4, 31).double())
    with pytest.raises(LrpeError, match="output_attentions=False"):
        tiny(LrpeForPairClassification)(ids, pair_input_ids=ids, output_attentions=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_pooling_counts_exactly_in_half_precision(dtype):
    x = torch.arange(3000.0).view(1, 3000, 1).repeat(2, 1, 1) / 3000
    mask = torch.ones(2, 3000, dtype=torch.long)
    mask[0, 2990:] = 0
    assert_close(pool(x.to(dtype), mask, "last")[:, 0], x[[0, 1], [2989, 2999], 0].to(dtype))
    assert_close(pool(x.to(dtype), mask, "mean")[0, 0].float(), x[0, :2990].mean(), atol=5e-3, rtol=0)


def test_batch_norm_of_many_tokens_does_not_overflow_in_half_precision():
    norm, mask = BatchNorm(1), torch.ones(20, 4000, dtype=torch.bool)
    mask[0, 0] = False
    y = norm(torch.randn(20, 4000, 1).half(), mask)
    assert y.dtype == torch.float16
    assert y.isfinite().all()
    assert norm.running_mean.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 30}, "num_attention_heads must divide hidden_size"),
        ({"num_key_value_heads": 0}, "num_key_value_heads must be a whole number"),
        ({"image_size": -16}, "image_size must be a whole number"),
        ({"classifier_hidden_size": 0}, "classifier_hidden_size must be a whole number"),
        ({"norm_eps": float("nan")}, "norm_eps must be a number above 0"),
        ({"initializer_range": -1.0}, "initializer_range must be a number above 0"),
        ({"gated": "no"}, "gated must be one of"),
        ({"causal": "yes"}, "causal must be one of"),
        ({"pad_token_id": 40}, "pad_token_id must be below vocab_size=40"),
        ({"encoding": 3}, "encoding must be a name, a dictionary, or a list"),
        ({"seed": "a"}, "seed must be a whole number"),
        ({"hidden_dropout_prob": "a"}, "hidden_dropout_prob must be a rate"),
    ],
)
def test_a_number_that_is_none_is_named(changes, message):
    with pytest.raises(LrpeError, match=message):
        tiny_config(**changes)


def test_a_tuple_is_as_good_as_a_list():
    assert tiny_config(attention=("linear", "softmax")).layer_attention(1) == "softmax"


def test_weights_of_another_model_are_refused(tmp_path):
    from safetensors.torch import save_file

    model = tiny(LrpeForCausalLM).float()
    model.save_pretrained(tmp_path)
    save_file({"transformer.h.0.attn.weight": torch.zeros(2, 2)}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(LrpeError, match="are of another model: none of the expected"):
        LrpeForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(LrpeError, match="use_safetensors must be True"):
        LrpeForCausalLM.from_pretrained(tmp_path, use_safetensors=False)

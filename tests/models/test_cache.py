"""The cache: its size, its rows, and the caches that a model refuses."""

import copy

import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.models import LrpeCache, LrpeForCausalLM
from tests.models.tiny import draw_ids, tiny


def test_the_cache_of_linear_attention_does_not_grow():
    model, sizes = tiny(LrpeForCausalLM), []
    for tokens in (4, 40):
        greedy = {"max_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}
        output = model.generate(draw_ids(1, 3), return_dict_in_generate=True, **greedy)
        sizes.append(output.past_key_values.nbytes)
    assert sizes[0] == sizes[1]


def test_a_cache_of_another_kind_or_model_is_refused():
    from transformers import DynamicCache

    model, ids = tiny(LrpeForCausalLM), draw_ids(1, 5)
    with pytest.raises(LrpeError, match=r"past_key_values must be an LrpeCache.*got DynamicCache"):
        model(ids, past_key_values=DynamicCache())
    with pytest.raises(LrpeError, match="must have 2 layers; got 3"):
        model(ids, past_key_values=LrpeCache(3))
    with pytest.raises(LrpeError, match=r"cannot remove tokens.*rollback=4"):
        model(ids).past_key_values.crop(1)


def test_a_reset_cache_is_an_empty_one():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 5)
    cache = model(ids).past_key_values
    cache.reset()
    assert cache.get_seq_length() == 0
    assert_close(model(ids, past_key_values=cache).logits, model(ids).logits)


def test_rows_of_a_cache_are_repeated_and_selected():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 6)
    cache = model(ids[:, :5]).past_key_values
    cache.batch_repeat_interleave(2)
    cache.batch_select_indices(torch.tensor([3, 0]))
    after = model(ids[[1, 0], 5:], past_key_values=cache).logits
    assert_close(after[:, 0], model(ids[[1, 0]]).logits[:, 5])


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

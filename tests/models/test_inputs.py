"""Masks, positions and packed sequences of a caller are obeyed or refused."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.models import (
    LrpeForCausalLM,
    LrpeForMaskedLM,
    LrpeForPairClassification,
    LrpeForSequenceClassification,
)
from lrpe.models.inputs import of_new_tokens, packed_by
from tests.models.tiny import draw_ids, tiny


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


def test_token_types_and_wide_embeddings_are_named():
    model, ids = tiny(LrpeForSequenceClassification), draw_ids(1, 4)
    model(ids, token_type_ids=torch.zeros_like(ids))
    with pytest.raises(LrpeError, match="no token types"):
        model(ids, token_type_ids=torch.ones_like(ids))
    with pytest.raises(LrpeError, match=r"inputs_embeds must be \(batch, n, 32\); got \(1, 4, 31\)"):
        model(inputs_embeds=torch.zeros(1, 4, 31).double())
    with pytest.raises(LrpeError, match="output_attentions=False"):
        tiny(LrpeForPairClassification)(ids, pair_input_ids=ids, output_attentions=True)

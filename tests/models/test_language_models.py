"""Causal and masked language models: what they see, their losses and their outputs."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.models import LrpeForCausalLM, LrpeForMaskedLM
from tests.models.tiny import VOCABULARY, draw_ids, tiny


def test_a_masked_model_sees_both_ways_and_scores_what_was_masked():
    model, ids = tiny(LrpeForMaskedLM), draw_ids(2, 6)
    changed = ids.clone()
    changed[:, -1] = ids[:, -1] % (VOCABULARY - 1) + 1
    assert not torch.allclose(model(ids).logits[:, 0], model(changed).logits[:, 0])
    labels = torch.full_like(ids, -100)
    labels[0, 2] = 7
    output = model(ids, labels=labels)
    assert_close(output.loss, -output.logits.float()[0, 2].log_softmax(-1)[7])
    with pytest.raises(LrpeError, match="causal must be False or None in LrpeForMaskedLM; got causal=True"):
        tiny(LrpeForMaskedLM, causal=True)


def test_a_causal_model_does_not_see_what_follows():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 6)
    changed = ids.clone()
    changed[:, -1] = 1
    assert_close(model(ids).logits[:, :-1], model(changed).logits[:, :-1])
    logits = model(ids).logits[:, :-1].float().flatten(0, 1)
    assert_close(model(ids, labels=ids).loss, torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten()))


def test_bad_input_is_named():
    model, ids = tiny(LrpeForCausalLM), draw_ids(1, 5)
    with pytest.raises(LrpeError, match="at least 0 and below vocab_size=40; got -2 to 40"):
        model(torch.tensor([[40, -2, 7]]))
    with pytest.raises(LrpeError, match="one of input_ids, inputs_embeds and pixel_values; got none"):
        model()
    with pytest.raises(LrpeError, match=r"attention_mask must be \(batch, n\)"):
        model(ids, attention_mask=torch.ones(1, 1, 5, 5))
    with pytest.raises(LrpeError, match="output_attentions=False"):
        model(ids, output_attentions=True)
    with pytest.raises(LrpeError, match="causal must be True or None in LrpeForCausalLM; got causal=False"):
        tiny(LrpeForCausalLM, causal=False)


def test_logits_to_keep_are_the_last_ones():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 5)
    logits = model(ids).logits
    assert_close(model(ids, logits_to_keep=2).logits, logits[:, -2:])
    assert_close(model(ids, logits_to_keep=torch.tensor([0, 3])).logits, logits[:, [0, 3]])


def test_hidden_states_and_tuples_come_as_asked():
    model, ids = tiny(LrpeForCausalLM), draw_ids(2, 5)
    hidden = model(ids, output_hidden_states=True).hidden_states
    assert len(hidden) == 3
    assert_close(model.lm_head(hidden[-1]), model(ids).logits)
    assert_close(model(ids, return_dict=False)[0], model(ids).logits)

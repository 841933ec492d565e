"""The trunk against the same written out by hand, and what it shares and refuses."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError
from lrpe.attention.tokens import read_tokens
from lrpe.models import LrpeCache, LrpeForCausalLM, LrpeForMaskedLM, LrpeForSequenceClassification, LrpeModel
from tests.models.tiny import draw_ids, tiny, tiny_config


@pytest.mark.parametrize("choice", [{}, {"norm_position": "post"}, {"embedding_norm": True}])
def test_a_trunk_is_an_embedding_blocks_and_a_last_norm(choice):
    model, ids = tiny(LrpeModel, norm_eps=0.1, **choice), draw_ids(2, 5)
    x = model.embed_tokens(ids)
    x = model.embedding_norm(x) if "embedding_norm" in choice else x
    tokens, seen = read_tokens(x), []
    for block in model.layers:
        seen.append(x)
        x = block(x, tokens)[0]
    x = x if "norm_position" in choice else model.norm(x)
    output = model(ids, output_hidden_states=True)
    assert_close(output.last_hidden_state, x)
    assert len(output.hidden_states) == 3
    for found, expected in zip(output.hidden_states, [*seen, x], strict=True):
        assert_close(found, expected)
    norms = [module for name, module in model.named_modules() if name.endswith("norm")]
    assert {norm.eps for norm in norms} == {0.1}


def test_a_configuration_serves_several_models_and_stays_as_it_is():
    config = tiny_config()
    assert LrpeForCausalLM(config).config.causal is True
    assert LrpeForMaskedLM(config).config.causal is False
    assert LrpeForSequenceClassification(config).config.causal is False
    assert config.causal is None


def test_a_trunk_over_patches_sees_both_ways_unless_it_is_told():
    assert tiny(LrpeModel, image_size=8, patch_size=4, decay=None).config.causal is False
    assert tiny(LrpeModel).config.causal is True


def test_a_cache_is_refused_where_blocks_are_computed_twice():
    model, ids = tiny(LrpeForCausalLM).train(), draw_ids(1, 6)
    model.gradient_checkpointing_enable()
    with pytest.raises(LrpeError, match="Gradient checkpointing runs blocks twice"):
        model(ids, past_key_values=LrpeCache(2))


def test_drop_path_leaves_out_branches_in_training_alone():
    model, ids = tiny(LrpeModel, drop_path_rate=0.5), draw_ids(4, 6)
    assert_close(model(ids).last_hidden_state, model(ids).last_hidden_state)
    model.train()
    torch.manual_seed(0)
    first, second = (model(ids).last_hidden_state for _ in range(2))
    assert not torch.allclose(first, second)

"""Blocks, feed-forward layers and trunks, against the same written out by hand."""

import pytest
import torch
from torch.nn.functional import gelu, silu
from torch.testing import assert_close

from lrpe.attention.state import DecodingState
from lrpe.attention.tokens import read_tokens
from lrpe.models import LrpeForSequenceClassification, LrpeModel
from lrpe.models.block import Block, DropPath, FeedForward, build_attention
from tests.models.tiny import draw_ids, tiny, tiny_config

EPS = 0.1  # large enough to show
GRADES = torch.linspace(0.5, 2.0, 32).double()


def normalise(x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
    scaled = (x - x.mean(-1, keepdim=True)) / (x.var(-1, correction=0, keepdim=True) + EPS).sqrt()
    return scaled * GRADES + shift


def make_block(**changes) -> Block:
    torch.manual_seed(0)
    block = Block(tiny_config(norm_eps=EPS, causal=True, **changes), 0).double().eval()
    for norm, shift in ((block.attention_norm, 0.5), (block.feed_forward_norm, -0.5)):
        norm.weight.data.copy_(GRADES)
        norm.bias.data.fill_(shift)
    return block


@pytest.mark.parametrize("position", ["pre", "post"])
def test_a_block_is_two_residuals_with_a_norm_before_or_after_each(position):
    block, x = make_block(norm_position=position), torch.randn(2, 5, 32).double()
    attend, feed = block.attention, block.feed_forward
    if position == "pre":
        middle = x + attend(normalise(x, 0.5))
        expected = middle + feed(normalise(middle, -0.5))
    else:
        middle = normalise(x + attend(x), 0.5)
        expected = normalise(middle + feed(middle), -0.5)
    found, state = block(x, read_tokens(x))
    assert_close(found, expected)
    assert isinstance(state, DecodingState)


@pytest.mark.parametrize("gated", [True, False])
def test_a_feed_forward_layer_is_gated_or_not(gated):
    act = "silu" if gated else "gelu"
    layer = FeedForward(tiny_config(gated=gated, mlp_bias=True, hidden_act=act)).double()
    x = torch.randn(2, 3, 32).double()
    up = x @ layer.up_proj.weight.T + layer.up_proj.bias
    inner = silu(x @ layer.gate_proj.weight.T + layer.gate_proj.bias) * up if gated else gelu(up)
    assert_close(layer(x), inner @ layer.down_proj.weight.T + layer.down_proj.bias)
    assert (layer.gate_proj is None) == (not gated)
    assert FeedForward(tiny_config()).up_proj.bias is None


def test_the_rates_of_dropout_are_those_of_the_configuration():
    rates = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2, "drop_path_rate": 0.1}
    block = Block(tiny_config(causal=True, attention="softmax", **rates), 0)
    assert block.attention.dropout.p == block.feed_forward.dropout.p == 0.3
    assert block.attention.attention_dropout == 0.2
    assert block.drop_path.rate == 0.1


def test_dropped_branches_are_whole_rows_and_the_others_are_scaled_up():
    torch.manual_seed(0)
    drop, x = DropPath(0.25).train(), torch.randn(4000, 2, 3)
    ratio = drop(x) / x
    assert_close(ratio, ratio[:, :1, :1].expand_as(ratio))
    assert set(ratio[:, 0, 0].mul(3).round().tolist()) == {0.0, 4.0}
    assert ratio.mean() == pytest.approx(1, abs=0.03)
    assert torch.equal(drop.eval()(x), x)
    assert torch.equal(DropPath(0.0).train()(x), x)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_the_attention_of_a_layer_has_what_the_configuration_says(attention):
    sizes = {"num_key_value_heads": 2, "head_dim": 6, "decay": [0.5, 0.75], "attention_bias": True, "qkv_bias": False}
    choices = {"feature_map": "relu", "normalizer": "output", "attention": attention}
    built = build_attention(tiny_config("rope", causal=False, **sizes, **choices), 1)
    assert built.sizes == (32, 4, 2, 6, 6)
    assert built.decay.r.tolist() == [0.5, 0.75]
    assert built.q_proj.bias is built.k_proj.bias is built.v_proj.bias is None
    assert built.o_proj.bias is not None
    assert built.encoding.basis.dim == 6
    if attention == "linear":
        assert type(built.phi).__name__ == "Relu"
        assert type(built.normalizer).__name__ == "OutputNorm"
        assert not built.summation.causal
    else:
        assert not built.causal


@pytest.mark.parametrize("choice", [{}, {"norm_position": "post"}, {"embedding_norm": True}])
def test_a_trunk_is_an_embedding_blocks_and_a_last_norm(choice):
    model, ids = tiny(LrpeModel, norm_eps=EPS, **choice), draw_ids(2, 5)
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
    assert {norm.eps for norm in norms} == {EPS}


@pytest.mark.parametrize("inner", [None, 8])
def test_a_classifier_is_one_layer_or_two_with_a_tanh_between(inner):
    model, ids = tiny(LrpeForSequenceClassification, classifier_hidden_size=inner, num_labels=3), draw_ids(2, 5)
    x, head = model.model(ids).last_hidden_state.mean(1), model.classifier
    x = x if inner is None else (x @ head.dense.weight.T + head.dense.bias).tanh()
    assert_close(model(ids).logits, x @ head.labels.weight.T + head.labels.bias)
    assert head.labels.in_features == (inner or 32)

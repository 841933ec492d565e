"""Blocks, feed-forward layers and norms, against the same written out by hand."""

import pytest
import torch
from torch.nn.functional import gelu, silu
from torch.testing import assert_close

from lrpe.attention.feature_map import relu
from lrpe.attention.state import DecodingState
from lrpe.attention.tokens import read_tokens
from lrpe.models.block import BatchNorm, Block, DropPath, FeedForward, build_attention
from tests.models.tiny import tiny_config

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
        assert built.phi is relu
        assert type(built.normalizer).__name__ == "OutputNorm"
        assert not built.summation.causal
    else:
        assert not built.causal


def test_batch_norm_counts_real_tokens_only():
    torch.manual_seed(0)
    x, mask = torch.randn(3, 5, 4).double(), torch.arange(5) < torch.tensor([5, 2, 4])[:, None]
    ours, theirs = BatchNorm(4).double(), torch.nn.BatchNorm1d(4).double()
    assert_close(ours(x, mask)[mask], theirs(x[mask]))
    assert_close(ours.running_mean, theirs.running_mean)
    assert_close(ours.running_var, theirs.running_var)
    assert_close(ours.eval()(x, mask), theirs.eval()(x.flatten(0, 1)).view_as(x))


@pytest.mark.parametrize("real", [1, 2])
def test_batch_norm_of_few_tokens_divides_by_as_many_as_there_are(real):
    norm, x = BatchNorm(3, eps=0.5).double(), torch.randn(1, 4, 3).double()
    torch.nn.init.constant_(norm.weight, 3.0)
    torch.nn.init.constant_(norm.bias, 2.0)
    mask = (torch.arange(4) < real)[None]
    y, tokens = norm(x, mask), x[0, :real]
    mean, variance = tokens.mean(0), tokens.var(0, correction=0)
    assert_close(y[0, :real], 3 * (tokens - mean) / (variance + 0.5).sqrt() + 2)
    assert_close(norm.running_mean, 0.1 * mean)
    assert_close(norm.running_var, 0.9 + 0.1 * (tokens.var(0) if real > 1 else torch.zeros(3).double()))
    assert norm.num_batches_tracked == 1


def test_batch_norm_without_a_real_token_gives_numbers():
    norm = BatchNorm(3).double()
    assert norm(torch.randn(1, 4, 3).double(), torch.zeros(1, 4, dtype=torch.bool)).isfinite().all()
    assert norm.running_var.isfinite().all()


def test_batch_norm_of_two_texts_in_one_step_has_the_gradients_of_both():
    whole, padded = torch.randn(2, 3, 5, 4).double()  # as in a pair of texts, one of which is padded
    mask, everything = torch.arange(5) < torch.tensor([5, 2, 4])[:, None], torch.ones(3, 5, dtype=torch.bool)
    gradients, means = [], []
    for mask_of_whole in (None, everything):
        norm = BatchNorm(4).double()
        (norm(whole, mask_of_whole) * norm(padded, mask)).sum().backward()
        gradients.append([norm.weight.grad, norm.bias.grad])
        means.append([norm.running_mean, norm.running_var])
    assert_close(gradients[0], gradients[1])
    assert_close(means[0], means[1])


def test_batch_norm_of_many_tokens_does_not_overflow_in_half_precision():
    norm, mask = BatchNorm(1), torch.ones(20, 4000, dtype=torch.bool)
    mask[0, 0] = False
    y = norm(torch.randn(20, 4000, 1).half(), mask)
    assert y.dtype == torch.float16
    assert y.isfinite().all()
    assert norm.running_mean.isfinite().all()

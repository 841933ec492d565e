"""(batch, heads, n, d) or (batch, n, heads, d): the function takes either, if it is told which."""

import pytest
import torch
from torch.testing import assert_close

from lrpe import LrpeError, linear_attention
from tests.encodings.compositions import features

Q, K, V = features(2, 4, 7, 6), features(2, 2, 7, 6, seed=1), features(2, 2, 7, 5, seed=2)


@pytest.mark.parametrize("summation", ["causal", "bidirectional"])
def test_tokens_before_heads_give_the_same_with_tokens_before_heads(summation):
    told = {"decay": [0.9, 0.5], "mask": torch.arange(7) < torch.tensor([[7], [4]]), "summation": summation}
    expected, state = linear_attention(Q, K, V, **told)
    found, same = linear_attention(*(x.transpose(1, 2) for x in (Q, K, V)), layout="bnhd", **told)
    assert found.shape == (2, 7, 4, 5)
    assert_close(found.transpose(1, 2), expected, rtol=0, atol=0)
    assert (state is None) == (same is None)
    if state is not None:
        assert_close(same, state, rtol=0, atol=0)


SWAPPED = {
    "a mask": {"mask": torch.ones(2, 7, dtype=torch.bool)},
    "positions": {"positions": torch.arange(7)},
    "positions of rows": {"positions": torch.arange(7).expand(2, 7)},
    "sequences": {"sequences": torch.zeros(7, dtype=torch.long)},
    "a decay": {"decay": [0.9, 0.8, 0.7, 0.6]},
    "a decay's tensor": {"decay": torch.full((4,), 0.9)},
}


@pytest.mark.parametrize("told", SWAPPED.values(), ids=SWAPPED)
def test_what_is_said_of_the_other_axis_gives_the_wrong_layout_away(told):
    swapped = Q.transpose(1, 2)
    with pytest.raises(LrpeError, match=r"7 heads and 4 tokens.*pass layout='bnhd'"):
        linear_attention(swapped, swapped, swapped, **told)
    linear_attention(swapped, swapped, swapped, layout="bnhd", **told)
    with pytest.raises(LrpeError, match=r"7 heads and 4 tokens.*pass layout='bhnd'"):
        linear_attention(Q, Q, Q, layout="bnhd", **told)


def test_grouped_queries_give_it_away_too():
    with pytest.raises(LrpeError, match=r"4 queries and 2 keys.*layout=\"bnhd\""):
        linear_attention(*(x.transpose(1, 2) for x in (Q, K, V)))


def test_a_decay_of_as_many_key_heads_as_there_are_tokens_is_no_mistake():
    q, k = Q[:, :, :2], K[:, :, :2]
    out, _ = linear_attention(q, k, k, decay=[0.9, 0.5])
    assert out.shape == q.shape

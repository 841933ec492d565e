"""One vector from the hidden states of all tokens, value by value."""

import pytest
import torch
from torch.testing import assert_close

from lrpe.models.classification import pool

X = torch.arange(24.0).view(2, 4, 3)
MASK = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1]])


@pytest.mark.parametrize(
    ("kind", "whole", "masked"),
    [
        ("mean", X.mean(1), torch.stack([X[0, 1:3].mean(0), X[1].mean(0)])),
        ("last", X[:, 3], torch.stack([X[0, 2], X[1, 3]])),
        ("first", X[:, 0], torch.stack([X[0, 1], X[1, 0]])),
    ],
)
def test_the_real_tokens_are_averaged_or_one_of_them_is_taken(kind, whole, masked):
    assert_close(pool(X, None, kind), whole)
    assert_close(pool(X, torch.ones(2, 4), kind), whole)
    for mask in (MASK, MASK.bool(), MASK.float()):
        assert_close(pool(X, mask, kind), masked)


def test_a_text_of_one_token_is_that_token_and_one_of_none_has_no_mean():
    alone = torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0]])
    for kind in ("mean", "last", "first"):
        assert_close(pool(X, alone, kind)[0], X[0, 2])
    assert_close(pool(X, alone, "mean")[1], torch.zeros(3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_sums_are_precise_and_the_result_has_the_dtype_of_the_tokens(dtype):
    """In bfloat16 a sum of 3000 ones ends at 256, in float16 one of 3000 hundreds in infinity."""
    x = torch.full((1, 3000, 1), 100.0, dtype=dtype)
    found = pool(x, torch.ones(1, 3000, dtype=torch.long), "mean")
    assert found.dtype == dtype
    assert_close(found, x[:, 0])

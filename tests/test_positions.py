"""Which integer each token gets."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lrpe import LrpeError, positions


@given(length=st.integers(0, 20), offset=st.integers(-(10**12), 10**12))
def test_a_sequence_counts_on_from_its_offset(length, offset):
    s = positions.sequence(length, offset)
    assert s.dtype == torch.int64
    assert s.tolist() == [offset + i for i in range(length)]


@given(sizes=st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_a_grid_holds_every_cell_once_row_by_row(sizes):
    cells = positions.grid(*sizes)
    assert cells.shape[1] == len(sizes)
    assert cells.tolist() == [list(index) for index in torch.ones(sizes).nonzero().tolist()]


@given(left=st.integers(0, 3), n=st.integers(0, 5), right=st.integers(0, 3), kind=st.sampled_from([bool, int, float]))
def test_real_tokens_count_from_zero_whichever_side_is_padded(left, n, right, kind):
    mask = torch.tensor([[kind(0)] * left + [kind(1)] * n + [kind(0)] * right])
    s = positions.padded(mask)
    assert s.shape == mask.shape
    assert s[0, left : left + n].tolist() == list(range(n))
    assert (s >= 0).all()


def test_rows_are_padded_each_by_itself():
    mask = torch.tensor([[0, 1, 1], [1, 1, 0], [1, 1, 1]])
    assert positions.padded(mask).tolist() == [[0, 0, 1], [0, 1, 1], [0, 1, 2]]


@given(lengths=st.lists(st.integers(0, 5), max_size=5))
def test_packed_sequences_each_count_from_zero(lengths):
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    assert positions.packed(bounds).tolist() == [i for length in lengths for i in range(length)]


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda: positions.sequence(-1), "-1"),
        (lambda: positions.grid(), "()"),
        (lambda: positions.grid(2, -3), "sizes[1]=-3"),
        (lambda: positions.padded(torch.ones(3)), "(3,)"),
        (lambda: positions.packed(torch.tensor([1, 2])), "[1, 2]"),
        (lambda: positions.packed(torch.tensor([0, 3, 2])), "[0, 3, 2]"),
        (lambda: positions.packed(torch.tensor([], dtype=torch.int64)), "[]"),
        (lambda: positions.packed(torch.tensor(0)), "got 0"),
    ],
)
def test_what_gives_no_positions_is_refused(call, value):
    with pytest.raises(LrpeError) as error:
        call()
    assert value in str(error.value)

"""Positions of several axes: scores depend on the difference on each axis."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import (
    Angles,
    Encoding,
    Grid,
    Householder,
    Identity,
    LrpeError,
    Orthogonal,
    Permutation,
    Unitary,
    encoding,
    positions,
)
from lrpe.encodings import Fourier, YaRN
from tests.encodings.compositions import RELATIVE, features, make, scores, seeds

# Steps from the tokens lead along a sequence, not over a grid.
ALONG_A_SEQUENCE = ("selective", "selective-free", "switched", "mamba3")
every = pytest.mark.parametrize("name", [*(name for name in RELATIVE if name not in ALONG_A_SEQUENCE), "mixed"])
cells = st.lists(st.integers(-1000, 1000), min_size=3, max_size=3)


def on_grid(name, axes, seed=0):
    rotated = {"rotated": 2 * axes} if name == "half-rotated" else {}
    return make(name, 12, axes=axes, seed=seed, **rotated)


@every
@settings(max_examples=6)
@given(axes=st.sampled_from([2, 3]), seed=seeds, s=cells, t=cells, shift=cells)
def test_shifting_each_axis_by_its_own_amount_changes_nothing(name, axes, seed, s, t, shift):
    encode = on_grid(name, axes, seed).double()
    q, k = features(3, 1, 12, seed=seed), features(3, 1, 12, seed=seed + 1)
    s, t, shift = (torch.tensor([cell[:axes]]) for cell in (s, t, shift))
    assert_close(scores(encode, q, k, s + shift, t + shift), scores(encode, q, k, s, t), rtol=0, atol=1e-8)


@every
@settings(max_examples=6)
@given(axes=st.sampled_from([2, 3]), seed=seeds, s=cells, t=cells)
def test_the_score_on_a_grid_is_its_dense_formula(name, axes, seed, s, t):
    encode = on_grid(name, axes, seed).double()
    q, k = features(3, 1, 12, seed=seed), features(3, 1, 12, seed=seed + 1)
    P, Lambda = encode.basis.dense(), encode.matrix.dense(*(b - a for a, b in zip(s[:axes], t, strict=False)))
    W = P.mH @ Lambda @ P
    expected = (q.to(W.dtype) @ W @ k.to(W.dtype).mT).real
    assert_close(scores(encode, q, k, torch.tensor([s[:axes]]), torch.tensor([t[:axes]])), expected, rtol=0, atol=1e-8)


@every
@pytest.mark.parametrize("axes", [2, 3])
def test_no_axis_stands_for_another(name, axes):
    if name == "none":
        return
    encode, x = on_grid(name, axes), features(3, 1, 12)
    cell = [3, 5, 7][:axes]
    swapped = [5, 3, 7][:axes]
    assert not torch.allclose(encode(x, torch.tensor([cell])), encode(x, torch.tensor([swapped])))
    for axis in range(axes):
        moved = [value + (axis == j) for j, value in enumerate(cell)]
        assert not torch.allclose(encode(x, torch.tensor([cell])), encode(x, torch.tensor([moved])))


def test_the_first_axis_turns_the_first_dimensions():
    encode, row = encoding("rope", 8, axes=2), encoding("rope", 4)
    x, cells = features(6, 8), positions.grid(2, 3)
    expected = torch.cat([row(x[:, :4], cells[:, 0]), row(x[:, 4:], cells[:, 1])], -1)
    assert_close(encode(x, cells), expected)


@every
def test_batches_of_cells_align_with_the_batch(name):
    encode, x = on_grid(name, 2), features(3, 3, 4, 12)
    cells = torch.randint(-9, 9, (3, 4, 2), generator=torch.Generator().manual_seed(0))
    expected = torch.stack([encode(x[b], cells[b]) for b in range(3)])
    assert_close(encode(x, cells), expected)


@given(dim=st.integers(6, 20), axes=st.integers(1, 3))
def test_the_axes_share_all_dimensions(dim, axes):
    for name in ("type1", "type2", "type3"):
        encode = encoding(name, dim, axes=axes)
        assert encode.axes == axes
        if axes > 1:
            sizes = [part.dim for part in encode.matrix.parts]
            assert sum(sizes) == dim
            assert max(sizes) - min(sizes) <= 3  # pairs are shared, and then what is left


def orthogonal(pairs, kept, alternating, heads=None, learned=False):
    alpha = features(*(heads,) * (heads is not None), pairs, seed=pairs)
    return Orthogonal(2 * pairs + kept + alternating, Angles(alpha, learned), alternating)


REAL = {  # Λ with tables of one tensor and of two; of no pair, of all pairs, of odd widths
    "pairs": lambda heads: orthogonal(2, 0, 0, heads),
    "learned pairs": lambda heads: orthogonal(1, 0, 0, heads, learned=True),
    "kept": lambda heads: orthogonal(1, 1, 0, heads),
    "all kept": lambda heads: orthogonal(0, 2, 0, heads),
    "alternating": lambda heads: orthogonal(1, 0, 1, heads),
    "learned, kept, alternating": lambda heads: orthogonal(1, 2, 2, heads, learned=True),
    "all alternating": lambda heads: orthogonal(0, 0, 3, heads),
    "permutation": lambda heads: Permutation(3, seed=1, heads=heads),
}
COMPLEX = {
    "angles": lambda heads: Unitary(3, Angles(features(*(heads,) * (heads is not None), 3))),
    "learned angles": lambda heads: Unitary(1, Angles(features(*(heads,) * (heads is not None), 1), True)),
}
BASES = {
    "identity": Identity,
    "householder": lambda dim: Householder(dim, reflections=2, seed=0, learned=True),
    "fourier": Fourier,
}


COMBINATIONS = [
    pytest.param([parts[name] for name in names], id=" × ".join(names))
    for parts in (REAL, COMPLEX)
    for names in (*product(parts, repeat=2), (*parts, *parts)[-3:])
]


@pytest.mark.parametrize("parts", COMBINATIONS)
def test_any_parts_score_as_their_dense_matrices_do(parts):
    for heads, basis in product((None, 2), BASES.values()):
        Lambda = Grid(*(part(heads) for part in parts)).double()
        encode = Encoding(basis(Lambda.dim).double(), Lambda)
        q, k = (features(2, 2, 1, Lambda.dim, seed=seed) for seed in (0, 1))
        s, t = (torch.randint(-99, 99, (2, 1, Lambda.axes), generator=torch.manual_seed(i)) for i in (0, 1))
        P = encode.basis.dense()
        W = torch.stack([P.mH @ Lambda.dense(*offset) @ P for offset in (t - s)[:, 0].tolist()])
        W = W if heads else W[:, None]
        assert_close(scores(encode, q, k, s, t), (q.to(W.dtype) @ W @ k.to(W.dtype).mT).real, rtol=0, atol=1e-12)


def test_a_grid_with_one_alternating_part_is_as_wide_as_its_parts_and_attends_as_they_do():
    encode = Encoding(Identity(8), Grid(Orthogonal(4), Orthogonal(4, alternating=2)))
    x, cells = features(6, 8), positions.grid(2, 3)
    rows, columns = Encoding(Identity(4), Orthogonal(4)), Encoding(Identity(4), Orthogonal(4, alternating=2))
    expected = torch.cat([rows(x[:, :4], cells[:, 0]), columns(x[:, 4:], cells[:, 1])], -1)
    assert_close(encode(x, cells), expected, rtol=0, atol=0)


def test_the_score_scale_of_a_grid_is_that_of_its_parts():
    encode = encoding("rope", 8, axes=2, scaling={"kind": "yarn", "factor": 4.0, "length": 64})
    assert encode.score_scale == encode.matrix.score_scale == YaRN(4.0, 64).score_scale != 1


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (lambda: Grid(Orthogonal(4)), ["parts must be at least 2", "got 1"]),
        (lambda: Grid(Orthogonal(4), Unitary(4)), ["True", "False"]),
        (lambda: Grid(Permutation(4, heads=2), Permutation(4)), ["2", "None"]),
        (
            lambda: Grid(Orthogonal(4), Orthogonal(4, Angles(torch.ones(2), scaling=YaRN(4.0, 64)))),
            ["score_scale", "1.0", "1.296"],
        ),
        (lambda: encoding("spe", 8, heads=2, axes=2), ["axes=2"]),
        (lambda: encoding("rope", 8, axes=2)(torch.ones(6, 8)), ["2 axes", "grid(height, width)"]),
        (lambda: encoding("rope", 8, axes=2)(torch.ones(6, 8), torch.arange(6)), ["(n, 2)", "(6,)"]),
        (lambda: encoding("rope", 8, axes=2)(torch.ones(6, 8), positions.grid(1, 2, 3)), ["(n, 2)", "(6, 3)"]),
        (lambda: encoding("rope", 8, axes=2)(torch.ones(5, 8), positions.grid(2, 3)), ["6 positions", "5 rows"]),
        (lambda: encoding("rope", 2, axes=3), ["axes=3", "head_dim=2"]),
        (lambda: encoding("rope", 8, axes=0), ["axes=0"]),
    ],
)
def test_what_does_not_fit_a_grid_is_refused(call, values):
    with pytest.raises(LrpeError) as error:
        call()
    assert all(value in str(error.value) for value in values)


@pytest.mark.parametrize("name", ["half-rotated", "type2"])
@pytest.mark.parametrize(("dim", "axes"), [(12, 2), (64, 3), (15, 2)])
def test_the_axes_share_the_pairs(name, dim, axes):
    parts = encoding(name, dim, axes=axes).matrix.parts
    pairs = [part.pairs for part in parts]
    assert sum(part.dim for part in parts) == dim
    assert max(pairs) - min(pairs) <= 1
    assert min(pairs) >= 1


def test_an_axis_without_a_pair_is_refused():
    with pytest.raises(LrpeError, match="at least 2 per axis"):
        encoding("type2", 2, axes=2)
    with pytest.raises(LrpeError, match="at least 2 per axis"):
        encoding("type3", 3, axes=2)

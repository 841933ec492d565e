"""Definition 3.1, for every composition: (M_s q)ᴴ (M_t k) = qᴴ W_{t-s} k."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import Encoding, Householder, Identity, LrpeError, Orthogonal, Permutation, Unitary
from lrpe.encodings import Dense
from tests.encodings.compositions import RELATIVE, dims, far, features, make, scores, seeds, several

few = settings(max_examples=10)
heads = st.sampled_from([None, 3])
every = pytest.mark.parametrize("name", RELATIVE)


def built(name, dim, heads, seed):
    """In float64, with learned parameters away from where they start."""
    encode = make(name, dim, seed=seed, heads=3 if name == "per" else heads).double()
    with torch.no_grad():
        for parameter in encode.parameters():
            parameter += 0.1 * features(*parameter.shape, seed=seed)
    return encode


@every
@few
@given(dim=dims, heads=heads, seed=seeds, s=several, t=several, shift=far)
def test_shifting_all_positions_changes_nothing(name, dim, heads, seed, s, t, shift):
    encode = built(name, dim, heads, seed)
    q, k = features(3, len(s), dim, seed=seed), features(3, len(t), dim, seed=seed + 1)
    s, t = torch.tensor(s), torch.tensor(t)
    assert_close(
        scores(encode, q, k, s + shift, t + shift), scores(encode, q, k, s, t), atol=1e-8 * dim, rtol=0
    )  # 10^6 radians have 10 digits behind the point in float64


@every
@few
@given(dim=dims, heads=heads, seed=seeds, s=far, t=far)
def test_a_score_is_the_real_part_of_its_dense_formula(name, dim, heads, seed, s, t):
    encode = built(name, dim, heads, seed)
    q, k = features(3, 1, dim, seed=seed), features(3, 1, dim, seed=seed + 1)
    P, Lambda = encode.basis.dense(), encode.matrix.dense(t - s)
    W = P.mH @ Lambda @ P
    expected = (q.to(W.dtype) @ W @ k.to(W.dtype).mT).real
    assert_close(scores(encode, q, k, torch.tensor([s]), torch.tensor([t])), expected, atol=1e-8 * dim, rtol=0)


@every
@few
@given(dim=dims, heads=heads, seed=seeds, s=several)
def test_encoding_keeps_lengths(name, dim, heads, seed, s):
    encode = built(name, dim, heads, seed)
    x = features(3, len(s), dim, seed=seed)
    assert_close(encode(x, torch.tensor(s)).norm(dim=-1), x.norm(dim=-1), rtol=1e-10, atol=0)


@every
@few
@given(dim=dims, heads=heads, seed=seeds, s=st.integers(-20, 20), t=far)
def test_the_position_matrix_is_a_unitary_representation_of_the_integers(name, dim, heads, seed, s, t):
    Lambda = built(name, dim, heads, seed).matrix.dense
    identity = torch.eye(dim, dtype=torch.complex128).expand_as(Lambda(0))
    assert_close(Lambda(0), identity, rtol=0, atol=0)
    assert_close(Lambda(s).mH @ Lambda(t), Lambda(t - s), rtol=0, atol=1e-8)
    assert_close(Lambda(s), torch.linalg.matrix_power(Lambda(1), s), rtol=0, atol=1e-12)
    assert_close(Lambda(t).mH @ Lambda(t), identity, rtol=0, atol=1e-14)


@every
@few
@given(dim=dims, seed=seeds)
def test_the_basis_is_unitary(name, dim, seed):
    P = built(name, dim, None, seed).basis.dense()
    assert_close(P.mH @ P, torch.eye(dim, dtype=P.dtype), rtol=0, atol=1e-10)


@every
@few
@given(dim=dims, seed=seeds, s=several)
def test_the_modules_forward_are_their_dense_matrices(name, dim, seed, s):
    encode = built(name, dim, None, seed)
    x, eye = features(3, 1, dim, seed=seed), torch.eye(dim, dtype=torch.float64)
    y = encode.basis(x)
    re, im = y.chunk(2, -1) if encode.basis.is_complex else (y, torch.zeros_like(y))
    assert_close(torch.complex(re, im), x.to(torch.complex128) @ encode.basis.dense().mT)
    for position in s:
        columns = encode.matrix(eye.expand(3, dim, dim), torch.full((dim,), position)).mT
        re, im = columns.chunk(2, -2) if encode.matrix.is_complex else (columns, torch.zeros_like(columns))
        assert_close(torch.complex(re, im), encode.matrix.dense(position).expand(3, dim, dim), rtol=0, atol=1e-12)


@every
def test_a_table_serves_queries_and_keys(name):
    encode = make(name, 8)
    x, positions = features(2, 3, 5, 8, dtype=torch.float32), torch.tensor([3, -1, 4, 1000, 7])
    table = encode.table(positions)
    for encoded in (encode.query(x, table), encode.key(x, table), encode(x, table=table)):
        assert_close(encoded, encode(x, positions), rtol=0, atol=0)


@every
def test_the_features_have_the_width_that_is_declared(name):
    encode = make(name, 7)
    assert encode(features(3, 4, 7)).shape == (3, 4, encode.feature_dim)


def test_any_given_unitary_matrix_is_a_basis():
    Q = torch.linalg.qr(torch.complex(features(6, 6), features(6, 6, seed=1))).Q
    for matrix in (Unitary(6), Orthogonal(6), Permutation(6)):
        encode = Encoding(Dense(Q), matrix)
        q, k = features(1, 6), features(1, 6, seed=1)
        W = Q.mH @ matrix.dense(5) @ Q
        expected = (q.to(W.dtype) @ W @ k.to(W.dtype).mT).real
        assert_close(scores(encode, q, k, torch.tensor([2]), torch.tensor([7])), expected)


@pytest.mark.parametrize(
    ("make_it", "values"),
    [
        (lambda: Encoding(Identity(8), Orthogonal(6)), ["8", "6"]),
        (lambda: Encoding(Identity(4), Orthogonal(4), acts="during"), ["before", "after", "during"]),
        (lambda: Encoding(Identity(4), Orthogonal(4), decay=torch.tensor([0.5, 1.5])), ["0.5", "1.5"]),
        (lambda: Encoding(Identity(4), Orthogonal(4), decay=torch.tensor([0.0])), ["0.0", "0 < r"]),
        (lambda: Encoding(Identity(4), Permutation(4, heads=3), decay=torch.tensor([0.5])), ["1", "3 heads"]),
    ],
)
def test_parts_that_do_not_go_together_are_refused(make_it, values):
    with pytest.raises(LrpeError) as error:
        make_it()
    assert all(value in str(error.value) for value in values)


@pytest.mark.parametrize("name", ["type1", "none", "learned*permutation"])
@pytest.mark.parametrize(
    ("x", "values"),
    [
        (torch.ones(3, 4, 7), ["head_dim=8", "(3, 4, 7)"]),
        (torch.ones(8), ["(..., n, head_dim)", "(8,)"]),
        (torch.ones(3, 4, 8, dtype=torch.int64), ["torch.int64"]),
        (torch.ones(3, 4, 8, dtype=torch.complex64), ["torch.complex64"]),
    ],
)
def test_features_of_another_shape_or_kind_are_refused(name, x, values):
    with pytest.raises(LrpeError) as error:
        make(name, 8)(x)
    assert all(value in str(error.value) for value in values)


def test_a_table_and_positions_together_are_refused():
    encode = Encoding(Householder(4), Orthogonal(4))
    with pytest.raises(LrpeError, match="positions or table, not both"):
        encode(torch.ones(3, 4), torch.arange(3), table=encode.table(torch.arange(3)))


def test_a_table_of_another_length_is_refused():
    encode = Encoding(Identity(4), Orthogonal(4))
    with pytest.raises(LrpeError, match=r"5 positions for 3 rows of x \(3, 4\)"):
        encode(torch.ones(3, 4), table=encode.table(torch.arange(5)))


def test_a_table_of_another_dtype_is_refused():
    encode = Encoding(Householder(4), Orthogonal(4))
    table = encode.table(torch.arange(3))
    with pytest.raises(LrpeError, match=r"table\(positions, x.dtype\)"):
        encode(torch.ones(3, 4, dtype=torch.float64), table=table)


def test_lists_serve_where_small_tables_are_given_and_are_refused_as_positions():
    assert Permutation(4, [1, 2, 3, 0]).dim == 4
    assert Dense([[0.0, 1.0], [1.0, 0.0]]).dim == 2
    with pytest.raises(LrpeError, match="got list"):
        Encoding(Identity(4), Orthogonal(4))(torch.ones(2, 4), [0, 1])


def test_factors_in_the_wrong_order_and_foreign_tables_are_refused():
    with pytest.raises(LrpeError, match="in that order"):
        Encoding(Orthogonal(4), Identity(4))
    with pytest.raises(LrpeError, match="got tuple"):
        Encoding(Identity(4), Orthogonal(4))(torch.ones(2, 4), table=())

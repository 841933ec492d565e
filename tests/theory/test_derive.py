"""Any W_1 comes back from its P and Λ, and so do its powers."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

import lrpe
from lrpe.encodings.config import BASES, MATRICES
from lrpe.encodings.encoding import Encoding
from lrpe.encodings.family import FAMILY
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.unitary import Unitary
from lrpe.errors import LrpeError
from lrpe.theory.derive import from_unitary

DTYPES = (torch.float64, torch.complex128)
dims = st.integers(1, 24)
seeds = st.integers(0, 2**32)
angles = st.one_of(
    st.sampled_from([1e-8, 1e-4, 1e-3, 0.7, math.pi / 3, math.pi / 2, 2.0, math.pi - 1e-4, math.pi - 1e-8]),
    st.floats(1e-6, math.pi - 1e-6),
)


def random_unitary(d: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)).Q


def conjugate(Lambda: Tensor, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Λ in a random basis."""
    Q = random_unitary(len(Lambda), seed, dtype)
    return Q.mH @ Lambda.to(dtype) @ Q


def blocks(alpha: list[float], kept: int = 0, negated: int = 0) -> Tensor:
    """block-diag(R(α_1), ..., I, -I), written out."""
    turns = [[[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]] for a in alpha]
    signs = torch.tensor([1.0] * kept + [-1.0] * negated, dtype=torch.float64)
    return torch.block_diag(*(torch.tensor(turn, dtype=torch.float64) for turn in turns), torch.diag(signs))


def dense(encode: lrpe.encodings.PositionalEncoding, s: int) -> Tensor:
    """W_s = Pᴴ Λ^(s) P."""
    assert isinstance(encode, Encoding)
    P = encode.basis.dense()
    return P.mH @ encode.matrix.dense(s) @ P


def parts(encode: Encoding) -> tuple[int, int, int]:
    """How many pairs turn, how many dimensions stay, how many alternate."""
    assert isinstance(encode.matrix, Orthogonal)
    p, r = encode.matrix.pairs, encode.matrix.alternating
    return p, encode.matrix.dim - 2 * p - r, r


def assert_near(x: Tensor, y: Tensor, tolerance: float = 1e-12) -> None:
    worst = float((x - y).abs().max())
    assert worst < tolerance, f"differ by {worst:.2e}"


def assert_round_trip(W1: Tensor) -> Encoding:
    encode = from_unitary(W1)
    P = encode.basis.dense()
    assert type(encode.matrix) is (Unitary if W1.is_complex() else Orthogonal)
    assert encode.basis.is_complex == W1.is_complex()
    assert_near(P @ P.mH, torch.eye(len(W1)))
    assert_near(dense(encode, 1), W1.to(torch.complex128))
    return encode


@given(dims, seeds, st.sampled_from(DTYPES))
def test_a_random_matrix_comes_back(d, seed, dtype):
    assert_round_trip(random_unitary(d, seed, dtype))


@pytest.mark.parametrize("d", [64, 65, 128])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_large_random_matrix_comes_back(d, dtype):
    assert_round_trip(random_unitary(d, 0, dtype))


@pytest.mark.parametrize("name", [*FAMILY, *(f"{P}*{Lambda}" for P in BASES for Lambda in MATRICES)])
def test_every_member_of_the_family_comes_back(name):
    W1 = dense(lrpe.encoding(name, head_dim=10, length=50), 1)
    assert_round_trip(W1)
    if not W1.imag.any():
        assert_round_trip(W1.real)


@given(st.permutations(range(13)), st.sampled_from([torch.int64, torch.bool, torch.float32, *DTYPES]))
def test_a_permutation_comes_back_with_a_fixed_direction_for_each_cycle(pi, dtype):
    encode = assert_round_trip(torch.eye(13).to(dtype)[list(pi)])
    if not dtype.is_complex:
        lengths = lrpe.Permutation(13, torch.tensor(pi)).cycles[0, 3].tolist()  # of the cycle of each element
        cycles = round(sum(1 / length for length in lengths))
        even = round(sum(1 / length for length in lengths if length % 2 == 0))
        assert parts(encode) == ((13 - cycles - even) // 2, cycles, even)


@given(st.lists(st.tuples(angles, st.integers(1, 3)), max_size=6), st.integers(0, 4), st.integers(0, 4), seeds)
def test_repeated_tiny_and_large_angles_are_found_in_any_basis(repeated, kept, negated, seed):
    alpha = sorted((a for a, times in repeated for _ in range(times)), reverse=True)
    Lambda = blocks(alpha, kept, negated)
    assume(len(Lambda))
    encode = assert_round_trip(conjugate(Lambda, seed))
    assert parts(encode) == (len(alpha), kept, negated)
    assert encode.matrix.angles.alpha.tolist() == pytest.approx(alpha, rel=0, abs=1e-12)
    phases = [*alpha, *(-a for a in alpha), *[0.0] * kept, *[math.pi] * negated]
    encode = assert_round_trip(conjugate(Lambda, seed, torch.complex128))
    assert encode.matrix.angles.alpha.tolist() == pytest.approx(sorted(phases, reverse=True), rel=0, abs=1e-12)


@pytest.mark.parametrize("d", [1, 2, 5, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8, *DTYPES])
def test_the_identity_stays_and_its_negative_alternates(d, dtype):
    eye = torch.eye(d).to(dtype)
    encodes = assert_round_trip(eye), assert_round_trip(-eye)
    if dtype.is_complex:
        assert [set(e.matrix.angles.alpha.tolist()) for e in encodes] == [{0.0}, {math.pi}]
    else:
        assert [parts(e) for e in encodes] == [(0, d, 0), (0, 0, d)]
    assert_near(dense(encodes[1], 2), torch.eye(d, dtype=torch.complex128))


@pytest.mark.parametrize("dtype", DTYPES)
def test_angles_with_evenly_spaced_cosines_leave_no_wide_gap_and_still_come_back(dtype):
    alpha = torch.linspace(-0.5, 0.5, 64, dtype=torch.float64).acos().tolist()
    assert_round_trip(conjugate(blocks(alpha), 0, dtype))


@pytest.mark.parametrize("seed", range(10))
def test_large_groups_of_equal_angles_come_back(seed):
    W1 = conjugate(blocks([1e-8] * 20 + [1.0] * 10, kept=60, negated=40), seed)
    assert parts(assert_round_trip(W1)) == (30, 60, 40)


def test_angles_of_every_size_come_back():
    alpha = torch.logspace(0, -12, 49, dtype=torch.float64).tolist()
    encode = assert_round_trip(conjugate(blocks(alpha, kept=3), 0))
    assert parts(encode) == (49, 3, 0)
    assert encode.matrix.angles.alpha.tolist() == pytest.approx(alpha, rel=0, abs=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tiny_angle_among_large_ones_is_not_lost_over_a_million_steps(dtype):
    W1 = conjugate(blocks([1e-8, 1.0, 1.0, 3.0], kept=3, negated=2), 0, dtype)
    encode = assert_round_trip(W1)
    assert_near(dense(encode, 10**6), torch.linalg.matrix_power(W1, 10**6).to(torch.complex128), 1e-7)
    assert_near(encode.matrix.angles.alpha.abs().sub(1e-8).abs().min(), torch.zeros(()), 1e-15)


@pytest.mark.parametrize("s", [0, 2, -3, 1000])
@pytest.mark.parametrize("d", [1, 6, 33])
@pytest.mark.parametrize("dtype", DTYPES)
def test_later_positions_are_powers(s, d, dtype):
    W1 = random_unitary(d, 3, dtype)
    assert_near(dense(from_unitary(W1), s), torch.linalg.matrix_power(W1, s).to(torch.complex128), 1e-11)


@pytest.mark.parametrize("d", [1, 2, 9, 32])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_eigenvalues_are_those_of_scipys_schur_form(d, dtype):
    W1 = random_unitary(d, 5, dtype)
    expected = np.diagonal(scipy.linalg.schur(W1.numpy(), output="complex")[0])
    found = torch.linalg.eigvals(from_unitary(W1).matrix.dense(1)).numpy()
    distance = np.abs(found[:, None] - expected)
    assert distance[scipy.optimize.linear_sum_assignment(distance)].max() < 1e-12


@given(dims, seeds)
def test_angles_fall_between_pi_and_0_for_pairs_and_between_pi_and_minus_pi_for_phases(d, seed):
    for dtype, low in zip(DTYPES, (0, -math.pi), strict=True):
        alpha = from_unitary(random_unitary(d, seed, dtype)).matrix.angles.alpha
        assert alpha.dtype == torch.float64
        assert bool(((low < alpha) & (alpha <= math.pi)).all())
        assert bool((alpha.diff() <= 0).all())


@given(dims, seeds, st.integers(-1000, 1000), st.sampled_from(DTYPES))
def test_scores_of_encoded_features_are_those_of_the_powers(d, seed, first, dtype):
    W1 = random_unitary(d, seed, dtype)
    q, k = torch.randn(2, 5, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    encode, positions = from_unitary(W1), first + torch.tensor([0, 1, 3, 7, 20])
    for s, row in enumerate(encode(q, positions) @ encode(k, positions).mT):
        for t, score in enumerate(row):
            W = torch.linalg.matrix_power(W1, int(positions[t] - positions[s]))
            assert_near(score, (q[s].to(dtype) @ W @ k[t].to(dtype)).real, 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_single_precision_gives_a_p_that_is_unitary_in_double(dtype):
    W1 = random_unitary(48, 0, dtype)
    encode = from_unitary(W1)
    P = encode.basis.dense()
    assert_near(P @ P.mH, torch.eye(48))
    U, _, Vh = torch.linalg.svd(W1.to(torch.complex128))
    assert_near(dense(encode, 1), U @ Vh)


def test_a_slightly_wrong_matrix_gives_the_nearest_unitary_one():
    W1 = random_unitary(20, 0) + 1e-10 * random_unitary(20, 1)
    U, _, Vh = torch.linalg.svd(W1)
    assert_near(dense(from_unitary(W1), 1), (U @ Vh).to(torch.complex128))


def test_the_default_device_says_where_the_result_lives_and_not_where_it_is_computed():
    W1 = random_unitary(6, 0)
    with torch.device("meta"):
        encode = from_unitary(W1)
    assert {t.device.type for t in encode.state_dict().values()} == {"meta"}


def test_nothing_of_the_result_is_learned():
    W1 = torch.nn.Parameter(random_unitary(6, 0))
    assert not any(t.requires_grad for t in from_unitary(W1).state_dict(keep_vars=True).values())


@pytest.mark.parametrize(
    ("W1", "law"),
    [
        (torch.ones(3), r"square matrix; got shape \(3,\)"),
        (torch.eye(3)[:2], r"square matrix; got shape \(2, 3\)"),
        (torch.eye(3).expand(2, 3, 3), r"square matrix; got shape \(2, 3, 3\)"),
        (torch.empty(0, 0), r"square matrix; got shape \(0, 0\)"),
        (torch.tensor([[math.nan, 0.0], [0.0, math.inf]]), "finite; got 2 entries"),
        (2 * torch.eye(3), r"W_1ᴴ W_1 = I to 1e-05 .*of 3.00e\+00.*U @ Vh"),
        (torch.tensor([[1, 1], [0, 1]]), r"unitary.*of 1.00e\+00"),
        (1e300 * torch.eye(2, dtype=torch.float64), "unitary.*of inf"),
        (torch.eye(2, dtype=torch.float64) * (1 + 1e-7), "= I to 1e-08 in torch.float64.*of 2.00e-07"),
        (torch.eye(2, dtype=torch.complex64) * (1 + 1e-4), "= I to 1e-05 in torch.complex64.*of 2.00e-04"),
        (torch.complex(torch.eye(2), torch.eye(2)), r"unitary.*of 1.00e\+00"),
    ],
)
def test_what_is_not_unitary_is_refused(W1, law):
    with pytest.raises(LrpeError, match=law):
        from_unitary(W1)

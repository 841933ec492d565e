"""P: the changes of basis against their formulas, PyTorch's and SciPy's."""

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import Householder, Identity, LrpeError
from lrpe.encodings import Cosine, Dense, Fourier, LearnedOrthogonal, OddEven
from tests.encodings.compositions import dims, features, seeds


def reflect(v):
    """H = I - 2 v vᵀ / (vᵀ v), written out."""
    return torch.eye(len(v), dtype=v.dtype) - 2 * torch.outer(v, v) / v.dot(v)


def explicit(V):
    """H_1 H_2 ⋯ H_m from the rows v_1, ..., v_m."""
    return torch.linalg.multi_dot([reflect(v) for v in (*V, *V[:1], *V[:1])])  # H_1 H_1 = I lets one v pass


@st.composite
def reflections(draw):
    """(m, d) vectors whose norms lie between 1e-3 and 1e3."""
    d = draw(dims)
    m, seed = draw(st.integers(1, d)), draw(seeds)
    norms = 10 ** draw(st.lists(st.floats(-3, 3), min_size=m, max_size=m).map(torch.tensor))
    V = features(m, d, seed=seed)
    return V / V.norm(dim=-1, keepdim=True) * norms[:, None].double()


def householder(V, learned=True):
    basis = Householder(V.shape[1], len(V), learned=learned).double()
    basis.load_state_dict({"v": V})
    return basis


@given(V=reflections())
def test_householder_is_the_product_of_its_reflections_in_their_order(V):
    assert_close(householder(V).dense().real, explicit(V), rtol=0, atol=1e-12)


@given(V=reflections())
def test_householder_is_orthogonal_for_vectors_of_any_norm(V):
    P = householder(V).dense().real
    assert_close(P.mT @ P, torch.eye(len(P), dtype=P.dtype), rtol=0, atol=1e-13)
    assert_close(torch.linalg.det(P), torch.tensor((-1.0) ** len(V), dtype=P.dtype))


@given(V=reflections())
def test_householder_is_orthogonal_in_float32_as_well_as_float32_can_be(V):
    basis = householder(V).float()
    x = features(5, V.shape[1], dtype=torch.float32)
    assert_close(basis(x).norm(dim=-1), x.norm(dim=-1), rtol=1e-5, atol=0)


@given(m=st.integers(1, 4), seed=seeds)
def test_householders_gradients_are_those_of_the_explicit_product(m, seed):
    V, x, g = features(m, 5, seed=seed), features(3, 5, seed=seed + 1), features(3, 5, seed=seed + 2)
    basis = householder(V)
    x.requires_grad_()
    ours = torch.autograd.grad((basis(x) * g).sum(), (x, basis.v))
    V.requires_grad_()
    theirs = torch.autograd.grad(((x @ explicit(V).mT) * g).sum(), (x, V))
    assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("m", [1, 3])
def test_householder_is_differentiable_twice(m):
    def apply(x, v):
        return torch.func.functional_call(basis, {"v": v}, (x,))

    basis = Householder(4, m, learned=True).double()
    inputs = features(2, 3, 4).requires_grad_(), features(m, 4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(apply, inputs)
    assert torch.autograd.gradgradcheck(apply, inputs)


def test_householder_is_learned_only_if_asked():
    assert [name for name, _ in Householder(4).named_parameters()] == []
    assert [name for name, _ in Householder(4, learned=True).named_parameters()] == ["v"]


@given(dim=dims, seed=seeds)
def test_the_seed_decides_the_reflections(dim, seed):
    assume(dim > 1)
    torch.manual_seed(0)
    first = Householder(dim, seed=seed).v
    torch.manual_seed(1)
    assert torch.equal(Householder(dim, seed=seed).v, first)
    assert not torch.equal(Householder(dim, seed=seed + 1).v, first)


@given(dim=dims)
def test_odd_even_interleaves_the_halves(dim):
    x = torch.arange(float(dim))
    y = OddEven(dim)(x)
    halves = x[: (dim + 1) // 2], x[(dim + 1) // 2 :]
    assert_close(y[0::2], halves[0])
    assert_close(y[1::2], halves[1])


@given(dims, st.data())
def test_odd_even_of_a_width_leaves_the_features_after_it(dim, data):
    width = data.draw(st.integers(0, dim))
    x = torch.arange(dim, dtype=torch.float64)
    y = OddEven(dim, width)(x)
    assert_close(y[width:], x[width:])
    assert_close(y[:width], OddEven(width)(x[:width]) if width else x[:0])


@given(dim=dims, seed=seeds)
def test_fourier_is_the_orthonormal_fft(dim, seed):
    x = features(3, dim, seed=seed)
    expected = torch.fft.fft(x, norm="ortho")
    assert_close(Fourier(dim)(x), torch.cat([expected.real, expected.imag], -1))


@given(dim=dims, seed=seeds)
def test_cosine_is_the_orthonormal_dct(dim, seed):
    x = features(3, dim, seed=seed)
    assert_close(Cosine(dim)(x), torch.from_numpy(np.asarray(scipy.fft.dct(x.numpy(), type=2, norm="ortho"))))


@given(dim=dims, seed=seeds, size=st.floats(0.01, 3))
def test_the_learned_basis_is_a_rotation_wherever_its_parameter_goes(dim, seed, size):
    basis = LearnedOrthogonal(dim, seed).double()
    with torch.no_grad():
        basis.A.mul_(size)
    P = basis.dense().real
    assert_close(P.mT @ P, torch.eye(dim, dtype=P.dtype), rtol=0, atol=1e-10)  # what matrix_exp gives
    assert_close(torch.linalg.det(P), torch.ones((), dtype=P.dtype))


def test_the_learned_basis_can_be_learned():
    target = torch.linalg.qr(features(4, 4, seed=3)).Q
    target[:, 0] *= torch.linalg.det(target)  # a rotation
    basis = LearnedOrthogonal(4).double()
    eye = torch.eye(4, dtype=torch.float64)
    for _ in range(200):
        (gradient,) = torch.autograd.grad((basis(eye) - target.mT).square().sum(), basis.A)
        with torch.no_grad():
            basis.A -= 0.1 * gradient
    assert_close(basis.dense().real, target, rtol=0, atol=1e-3)


@pytest.mark.parametrize("P", [torch.eye(3) * 1.1, torch.ones(2, 2), torch.tensor([[1, 1j], [1j, 1]])])
def test_a_matrix_that_is_not_unitary_is_refused(P):
    residual = (P.mH @ P - torch.eye(len(P))).abs().max()
    with pytest.raises(LrpeError, match=f"{residual:.2e}".replace("+", r"\+")):
        Dense(P)


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda: Dense(torch.eye(3)[:2]), ["(2, 3)"]),
        (lambda: Dense(torch.ones(4)), ["(4,)"]),
        (lambda: Householder(4, 5), ["reflections=5", "dim=4"]),
        (lambda: Householder(4, 0), ["reflections=0", "dim=4"]),
        (lambda: Identity(0), ["dim=0"]),
        (lambda: OddEven(4, 6), ["width=6", "dim=4"]),
        (lambda: LearnedOrthogonal(-1), ["dim=-1"]),
    ],
)
def test_sizes_that_no_basis_has_are_refused(make, values):
    with pytest.raises(LrpeError) as error:
        make()
    assert all(value in str(error.value) for value in values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_a_given_matrix_of_single_precision_becomes_unitary_in_double(dtype):
    given = torch.linalg.qr(torch.randn(16, 16, dtype=dtype, generator=torch.Generator().manual_seed(0))).Q
    P = Dense(given).dense()
    assert_close(P.mH @ P, torch.eye(16, dtype=P.dtype), rtol=0, atol=1e-14)
    assert_close(P, given.to(P.dtype), rtol=0, atol=1e-6)


@pytest.mark.parametrize("make", [Fourier, Cosine, lambda d: Dense(torch.eye(d))])
def test_a_matrix_stays_unitary_in_double_through_float_and_through_a_file_of_few_digits(make):
    basis = make(8).float().to(torch.bfloat16)
    basis.load_state_dict({name: value.to(torch.bfloat16) for name, value in basis.state_dict().items()})
    P = basis.dense()
    assert_close(P.mH @ P, torch.eye(8, dtype=P.dtype), rtol=0, atol=1e-14)

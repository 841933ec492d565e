"""Theorems 1 and 2 of the appendix: from any unitary or orthogonal W_1 to its P and Λ."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from lrpe.encodings.angles import Angles
from lrpe.encodings.encoding import Encoding
from lrpe.encodings.matrix_basis import Dense, nearest_unitary
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.unitary import Unitary

_NOISE = 1e-13  # an angle this close to 0 or π is a rounding error; those of d = 1000 are far smaller


@torch.no_grad()
def from_unitary(W1: Tensor) -> Encoding:
    """Return the encoding with W_s = W_1^s.

    Theorem 1: a unitary W_1 is Pᴴ diag(e^{iα_1}, ..., e^{iα_d}) P with a unitary P, which is Type 1.
    Theorem 2: an orthogonal W_1 is Pᵀ block-diag(R(α_1), ..., R(α_p), I_q, -I_r) P with an orthogonal P, which is
    Type 2; R(α) is the rotation by α, and 0 < α < π.

    The dtype chooses the theorem: a complex W_1 is Type 1 even if its imaginary part is zero. The angles are in
    descending order. A W_1 of single precision, or with small errors, is replaced by the nearest unitary matrix.

    >>> from_unitary(torch.tensor([[0, 1, 0], [0, 0, 1], [1, 0, 0]])).matrix.angles.alpha  # a cycle of three: 2π/3
    tensor([2.0944], dtype=torch.float64)
    """
    W = nearest_unitary(W1, "W_1")
    return _diagonalize(W) if W.is_complex() else _block_diagonalize(W)


def _diagonalize(W: Tensor) -> Encoding:
    """Theorem 1: the eigenvectors of W are those of the Hermitian iA."""
    P = torch.cat([Q @ torch.linalg.eigh(1j * A).eigenvectors for Q, A in _halves(W)], -1).mH
    alpha = (P @ W @ P.mH).diagonal().angle()
    alpha = torch.where(alpha < _NOISE - math.pi, alpha + 2 * math.pi, alpha)  # -1 is e^{iπ}, not e^{-iπ}
    alpha, order = alpha.sort(descending=True)
    return Encoding(Dense(P[order]), Unitary(len(W), Angles(alpha)))


def _block_diagonalize(W: Tensor) -> Encoding:
    """Theorem 2: W turns each plane (a, b) by α; the kernel of A is kept in the right half, negated in the left."""
    (a_left, b_left, negated), (a_right, b_right, kept) = (
        tuple(Q @ vectors for vectors in _planes(A)) for Q, A in _halves(W)
    )
    a, b = torch.cat([a_left, a_right], -1), torch.cat([b_left, b_right], -1)  # (d, p)
    Wa, Wb = W @ a, W @ b
    alpha = torch.atan2((b * Wa - a * Wb).sum(0), (a * Wa + b * Wb).sum(0))
    alpha, order = alpha.sort(descending=True)
    turned = torch.stack([a, b], -1)[:, order].flatten(1)  # a_1, b_1, a_2, b_2, ...
    P = torch.cat([turned, kept, negated], -1).mT
    return Encoding(Dense(P), Orthogonal(len(W), Angles(alpha), alternating=negated.shape[-1]))


def _halves(W: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Split the space into two invariant subspaces of W, cos α < c and cos α > c; yield the basis Q and A of each.

    A is the Cayley transform (V - I)(V + I)⁻¹ of V = QᴴWQ, or of -V in the left half. It has V's eigenvectors, but it
    is skew, with eigenvalues ±i tan(α/2), which separate all angles, as cos α would not near 0 and π. They are small,
    because c is in the widest gap of the middle third of the angles, so no α is near the pole at π.
    """
    cos, Q = torch.linalg.eigh((W + W.mH) / 2)
    bounds = cos.new_tensor([-0.5, 0.5])
    split = int(torch.cat([bounds[:1], cos.clamp(-0.5, 0.5), bounds[1:]]).diff().argmax())
    for sign, Q_half in ((-1, Q[:, :split]), (1, Q[:, split:])):
        V = sign * (Q_half.mH @ W @ Q_half)
        eye = torch.eye(len(V), dtype=V.dtype, device=V.device)
        yield Q_half, sign * torch.linalg.solve(V + eye, V - eye)


def _planes(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return orthonormal a_k, b_k with A a_k = σ_k b_k and A b_k = -σ_k a_k, then the kernel, for a real skew A.

    If A u = iσu, then a = √2 Im u and b = √2 Re u. Rounding mixes u with its conjugate when σ is small beside the
    largest, so only the large ones are taken here; the recursion finds those of the orthogonal complement.
    """
    sigma, u = torch.linalg.eigh(-1j * A)
    count = int((sigma > (sigma[-1:] / 8).clamp(min=_NOISE / 2)).sum())
    if count == 0:
        return A[:, :0], A[:, :0], torch.eye(len(A), dtype=A.dtype, device=A.device)
    large = math.sqrt(2) * u[:, -count:]
    rest = torch.linalg.qr(torch.cat([large.imag, large.real], -1), mode="complete").Q[:, 2 * count :]
    a, b, zero = (rest @ vectors for vectors in _planes(rest.mT @ A @ rest))
    return torch.cat([large.imag, a], -1), torch.cat([large.real, b], -1), zero

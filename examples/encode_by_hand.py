"""Encode queries and keys by hand, see that scores depend only on t-s, test an idea, and find the P and Λ of a W_1.

python examples/encode_by_hand.py
"""

import math

import torch

import lrpe

torch.manual_seed(0)


def encode_queries_and_keys() -> None:
    """Apply M_s = Λ^(s) P to every token, so that a score is qᴴ W_{t-s} k at any two positions."""
    encode = lrpe.encoding("type2", head_dim=64)  # a Householder reflection, then rotations
    q, k = torch.randn(2, 64)
    same_q, same_k = q.expand(10, 64), k.expand(10, 64)  # one query and one key, at every position from 0 to 9
    scores = encode(same_q) @ encode(same_k).mT
    print("Scores of one query and one key at positions 0, 1, 2, ... are equal along each diagonal:")
    print(scores[:4, :4].detach())
    assert torch.allclose(scores[:-1, :-1], scores[1:, 1:], atol=1e-4)

    far = torch.arange(10) + 1_000_000
    moved = encode(same_q, far) @ encode(same_k, far).mT
    print(f"A million positions later they differ by {(moved - scores).abs().max():.0e}.\n")
    assert torch.allclose(moved, scores, atol=1e-4)


def try_ideas() -> None:
    """Write ideas as functions from a position to the matrix M_s, and measure the laws on them."""

    def rotation(angle: float) -> torch.Tensor:
        cos, sin = math.cos(angle), math.sin(angle)
        return torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)

    steady = lrpe.verify(lambda s: rotation(0.3 * s))
    accelerating = lrpe.verify(lambda s: rotation(0.01 * s * s))
    print("Rotate by 0.3 s:", steady, "\nRotate by 0.01 s²:", accelerating, sep="\n")
    assert steady
    assert not accelerating

    falling = lrpe.linearizability(lambda offset: 0.9 ** abs(offset))
    print(f"\nCan 0.9^|t-s| be split into a factor for the query and one for the key? {falling.verdict}.\n")


def derive_from_one_step() -> None:
    """Derive the encoding from W_1: Theorem 2 gives an orthogonal P and the angles of Λ with W_s = W_1^s."""
    W1 = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q  # any orthogonal matrix
    encode = lrpe.from_unitary(W1)
    P, Lambda = encode.basis.dense(), encode.matrix.dense
    W5 = (P.mH @ Lambda(5) @ P).real
    error = (W5 - torch.linalg.matrix_power(W1, 5)).abs().max()
    print(f"A random W_1 rotates planes by α = {[round(a, 3) for a in encode.matrix.angles.alpha.tolist()]};")
    print(f"Pᵀ Λ^(5) P equals W_1⁵ to within {error:.0e}.")
    assert error < 1e-12
    assert lrpe.verify(encode)


if __name__ == "__main__":
    encode_queries_and_keys()
    try_ideas()
    derive_from_one_step()

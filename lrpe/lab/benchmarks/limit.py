"""The limit of a machine: the flops of the sums at the rate of a large matrix product in the same process."""

import torch

from lrpe.lab.benchmarks.device import place
from lrpe.lab.benchmarks.lines import Call

_CHUNK = 32  # tokens per chunk, as in the native kernel; a longer chunk would need more flops
_SIDE = 1024  # of the matrices of the product, which is large enough to reach the processor's rate
PRODUCT_FLOPS = 2 * _SIDE**3

Shape = tuple[int, int, int, int]  # batch, heads, n, d


def causal_flops(shape: Shape, backward: bool) -> int:
    """Return the flops of the products of a chunked causal sum with f = e = d features and values per head.

    A multiplication and an addition are two flops. Per token and head, with chunks of C tokens whose scores have
    (C + 1) / 2 entries per token under the diagonal:

    - forward, 4 f e + (C + 1)(f + e): the scores q kᵀ and their product with v, (C + 1) f and (C + 1) e; q S and
      S ← S + kᵀ v, 2 f e each.
    - backward, 10 f e + 3 (C + 1)(f + e): dq = dA k + g Sᵀ with dA = g vᵀ; dk = dAᵀ q + v dSᵀ; dv = Aᵀ g + k dS;
      dS ← dS + qᵀ g; and again dA, A and S, which are computed a second time instead of kept.

    φ, P, Λ, the decay and Δ are not counted: they grow with f + e, not with f e, and the limit has none of them.

    >>> causal_flops((1, 1, 1, 64), backward=False), causal_flops((1, 1, 1, 64), backward=True)
    (20608, 74240)
    """
    batch, heads, n, d = shape
    squares, triangles = (14, 4) if backward else (4, 1)
    return batch * heads * n * (squares * d * d + triangles * (_CHUNK + 1) * (d + d))


def bidirectional_flops(shape: Shape, backward: bool) -> int:
    """Return the flops of the products of a bidirectional sum with f = e = d features and values per head.

    Per token and head, forward: S = kᵀ v and q S, 4 f e. Backward: dq = g Sᵀ, dS = qᵀ g, dk = v dSᵀ and dv = k dS,
    8 f e; S, one matrix per head, is kept.

    >>> bidirectional_flops((1, 1, 1, 64), backward=False), bidirectional_flops((1, 1, 1, 64), backward=True)
    (16384, 49152)
    """
    batch, heads, n, d = shape
    return batch * heads * n * (12 if backward else 4) * d * d


def matrix_product() -> Call:
    """Return a call that multiplies two large matrices, which takes ``PRODUCT_FLOPS``."""
    a, b = place(torch.randn(2, _SIDE, _SIDE, generator=torch.Generator().manual_seed(0)))
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)

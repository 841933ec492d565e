"""The flops of the limit are those of the products that a chunked sum needs, counted one by one."""

import torch

from lrpe.lab.benchmarks.limit import PRODUCT_FLOPS, bidirectional_flops, causal_flops, matrix_product


def count(*products):
    """Count 2 m n k for products of (m × k) and (k × n) matrices."""
    return sum(2 * m * n * k for m, n, k in products)


def test_the_flops_of_a_chunk_are_those_of_its_products():
    C, d = 32, 64
    whole = (C, d, d)  # a chunk's rows times a state, or the update of one
    under = C * (C + 1) // 2  # entries of a chunk's scores, each of which takes d multiplications
    forward = count(whole, whole) + 2 * 2 * under * d  # q S and kᵀ v; the scores and their product with v
    # Forwards again: S and dA, then g Sᵀ and dA k. Backwards: A and dA, Aᵀ g, dAᵀ q, v dSᵀ, k dS and dS.
    backward = count(*[whole] * 5) + 6 * 2 * under * d
    assert causal_flops((1, 1, C, d), backward=False) == forward
    assert causal_flops((1, 1, C, d), backward=True) == forward + backward
    assert causal_flops((2, 3, 5 * C, d), backward=True) == 2 * 3 * 5 * (forward + backward)


def test_the_flops_of_a_bidirectional_sum_are_those_of_two_products_and_four():
    n, d = 100, 64
    assert bidirectional_flops((1, 1, n, d), backward=False) == count((d, d, n), (n, d, d))
    assert bidirectional_flops((1, 1, n, d), backward=True) == 3 * bidirectional_flops((1, 1, n, d), backward=False)


def test_the_matrix_product_has_its_flops():
    product = matrix_product()()
    assert isinstance(product, torch.Tensor)
    assert count((*product.shape, product.shape[0])) == PRODUCT_FLOPS

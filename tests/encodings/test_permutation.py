"""Type 3: π^s for any s, without a table of powers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import LrpeError, Permutation, encoding
from tests.encodings.compositions import features, seeds

permutations = st.integers(1, 20).flatmap(lambda d: st.permutations(range(d)))


def compose(pi, s):
    """π ∘ ⋯ ∘ π, s times; of the inverse for a negative s."""
    step = pi if s >= 0 else [pi.index(j) for j in range(len(pi))]
    power = list(range(len(pi)))
    for _ in range(abs(s)):
        power = [step[j] for j in power]
    return power


def order_of(pi):
    """The least common multiple of the lengths of the cycles: π^order = id."""
    lengths = []
    for j in range(len(pi)):
        k, length = pi[j], 1
        while k != j:
            k, length = pi[k], length + 1
        lengths.append(length)
    return math.lcm(*lengths)


@given(pi=permutations)
def test_a_power_is_the_permutation_composed_with_itself(pi):
    powers = Permutation(len(pi), torch.tensor(pi)).power(torch.arange(-50, 51)[None])[0, 0].tolist()
    for s in range(-50, 51):
        assert powers[s + 50] == compose(pi, s)


@given(pi=permutations, s=st.sampled_from([10**15, -(10**15), 2**62, -(2**62)]), more=st.integers(-9, 9))
def test_a_huge_power_is_the_power_modulo_the_order(pi, s, more):
    Lambda = Permutation(len(pi), torch.tensor(pi))
    power = Lambda.power(torch.tensor([[s + more]]))[0, 0, 0].tolist()
    assert power == compose(pi, (s + more) % order_of(pi))
    y = features(1, len(pi))
    assert torch.equal(Lambda(y, torch.tensor([s + more])), y[:, power])


@given(dim=st.integers(1, 20), seed=seeds, n=st.integers(1, 60))
def test_the_rows_are_the_listings_table(dim, seed, n):
    pi = torch.randperm(dim, generator=torch.Generator().manual_seed(seed))
    rows = [torch.arange(dim)]
    while len(rows) < n:
        rows.append(rows[-1][pi])  # T_s = T_{s-1}[π]
    x = features(n, dim, seed=seed)
    expected = torch.stack([x[s, row] for s, row in enumerate(rows)])
    assert torch.equal(Permutation(dim, seed=seed)(x), expected)
    assert torch.equal(encoding("permuteformer", dim, seed=seed)(x), expected)


def test_permuteformer_as_published_draws_head_after_head_from_its_own_seed():
    heads, dim, n = 4, 16, 40
    generator = torch.Generator().manual_seed(0xDEADBEEFDEADBEEF)
    tables = []
    for _ in range(heads):
        perm = torch.randperm(dim, generator=generator)
        rows = [torch.arange(dim)]
        for _ in range(n - 1):
            rows.append(rows[-1][perm])
        tables.append(torch.stack(rows))
    encode = encoding("per", dim, heads=heads)
    x = features(2, heads, n, dim)
    assert torch.equal(encode(x), x.gather(-1, torch.stack(tables).expand(x.shape)))


@given(heads=st.integers(1, 32))
def test_permuteformer_as_published_decays_by_sigmoid_of_3h_over_H_plus_2(heads):
    encode = encoding("per", 4, heads=heads)
    expected = [1 / (1 + math.exp(-(3 * h / heads + 2))) for h in range(heads)]
    assert_close(encode.decay, torch.tensor(expected, dtype=torch.float64), rtol=1e-15, atol=0)
    assert encode.acts == "before"


@given(heads=st.integers(1, 4), dim=st.integers(2, 9), seed=seeds)
def test_each_head_may_have_a_given_permutation(heads, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    pis = torch.stack([torch.randperm(dim, generator=generator) for _ in range(heads)])
    powers = Permutation(dim, pis).power(torch.tensor([[3]]))[0, :, 0]
    assert powers.tolist() == [compose(pi.tolist(), 3) for pi in pis]


@pytest.mark.parametrize(
    ("permutation", "values"),
    [
        ([0, 0, 2], "[0, 0, 2]"),
        ([1, 2, 3], "[1, 2, 3]"),
        ([0, 1], "[0, 1]"),
        ([[0, 1, 2], [0, 2, 2]], "[0, 2, 2]"),
        ([[[0, 1, 2]]], "[[[0, 1, 2]]]"),
        ([0.0, 1.0, 2.0], "[0.0, 1.0, 2.0]"),
        (1, "got 1"),
        ([], "[]"),
    ],
)
def test_what_is_not_a_permutation_is_refused(permutation, values):
    with pytest.raises(LrpeError) as error:
        Permutation(3, torch.tensor(permutation))
    assert values in str(error.value)
    assert "0, ..., 2" in str(error.value)

"""The sums of encoded features taken at once, against the same one by one."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from lrpe import Encoding, Householder, Orthogonal, encoding, engines, linear_attention
from lrpe.attention.sums.bidirectional import EncodedSum, can_fuse, encoded_sum
from lrpe.positions import sequence
from tests.encodings.compositions import features

D, E = 6, 5
FIXED = {
    "rope": {"learned_angles": False},
    "rope-half": {"learned_angles": False},
    "type1": {"learned_angles": False},
    "type2": {"learned_angles": False},
    "type2 of 3": {"learned_angles": False, "reflections": 3},
    "type2 a head": {"learned_angles": False, "heads": 2},
    "type3": {},
    "type3 a head": {"heads": 2},
}
MASK = torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]]).bool()
BOTH_WAYS = {"summation": "bidirectional", "decay": None}


def fixed(name):
    return encoding(name.split()[0], D, **FIXED[name])


def inputs(dtype=torch.float64, heads=4, n=7, m=7):
    sizes = ((3, heads, n, D), (3, 2, m, D), (3, 2, m, E))
    return [features(*size, seed=i).to(dtype).requires_grad_() for i, size in enumerate(sizes)]


@pytest.fixture(autouse=True)
def _by_torch():
    """The native engine would compute sums of float32."""
    with engines.use("torch"):
        yield


@pytest.fixture
def taken(monkeypatch):
    """How often the sums were taken at once."""
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return encoded_sum(*arguments)

    monkeypatch.setattr("lrpe.attention.linear.encoded_sum", counted)
    return calls


def both_ways(monkeypatch, taken, run, leaves):
    """Outputs and gradients at once, then one by one."""
    found = []
    for at_once in (True, False):
        if not at_once:
            monkeypatch.setattr("lrpe.attention.linear.can_fuse", lambda *_: False)
        before, y = len(taken), run()
        assert len(taken) == before + at_once
        found.append((y, *torch.autograd.grad(y.square().sum(), leaves)))
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "padded"])
@pytest.mark.parametrize("heads", [2, 4], ids=["heads", "grouped"])
@pytest.mark.parametrize("name", FIXED)
def test_at_once_is_as_one_by_one(name, heads, mask, dtype, monkeypatch, taken):
    encode, leaves = fixed(name), inputs(dtype, heads)

    def run():
        return linear_attention(*leaves, encode, **BOTH_WAYS, mask=mask)[0]

    at_once, one_by_one = both_ways(monkeypatch, taken, run, leaves)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for found, expected in zip(at_once, one_by_one, strict=True):
        assert_close(found, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("name", ["rope", "type2", "type3"])
def test_so_it_is_with_a_context(name, monkeypatch, taken):
    encode, leaves = fixed(name), inputs(n=4)
    context = {"attention": "cross", "context_mask": MASK}
    run = lambda: linear_attention(*leaves, encode, **BOTH_WAYS, **context)[0]  # noqa: E731
    at_once, one_by_one = both_ways(monkeypatch, taken, run, leaves)
    assert_close(at_once, one_by_one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FIXED)
def test_gradients_are_those_of_finite_differences_and_so_are_theirs(name):
    encode = fixed(name)
    table = encode.table(sequence(3)[None], torch.float64)
    leaves = [features(1, h, 3, w, seed=i).requires_grad_() for i, (h, w) in enumerate(((4, D), (2, D), (2, E)))]

    def sums(*leaves):
        return EncodedSum.of(*leaves, encode, (table, table))[:2]

    assert gradcheck(sums, leaves, check_batched_grad=True)
    assert gradgradcheck(sums, leaves, fast_mode=True)
    assert gradcheck(lambda *x: sums(*x)[1], [*leaves[:2], leaves[2].detach()], fast_mode=True)
    assert gradcheck(lambda *x: sums(*x)[0], leaves, fast_mode=True)


def test_gradients_without_an_encoding_come_in_batches_too():
    run = lambda *qkv: linear_attention(*qkv, "none", **BOTH_WAYS)[0]  # noqa: E731
    assert gradcheck(run, [x[:1, :, :3] for x in inputs()], check_batched_grad=True)


def test_one_tensor_may_be_all_three():
    encode, x = fixed("type2"), features(2, 2, 5, D).requires_grad_()

    def slope(x, at_once):
        options = {"feature_map": "identity", "normalizer": "plain", **BOTH_WAYS}
        parts = (x, x, x) if at_once else (x * 1, x * 1, x * 1)
        y = linear_attention(*parts, encode, **options)[0]
        (first,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), x)[0]

    assert_close(slope(x, True), slope(x, False), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("normalizer", ["encoded", "output"])
def test_other_denominators_go_another_way(normalizer, taken):
    linear_attention(*inputs(), fixed("type2"), normalizer=normalizer, **BOTH_WAYS)
    assert not taken


@pytest.mark.parametrize(
    "encode",
    [encoding("none", D), encoding("type2", D, learned_angles=True), encoding("type3", D, learned_basis=True)],
    ids=["none", "learned angles", "learned basis"],
)
def test_so_do_no_encoding_and_learned_ones(encode, taken):
    linear_attention(*inputs(torch.float32), encode, **BOTH_WAYS)
    assert not taken


def test_so_does_a_matrix_that_changes_how_it_acts_and_not_its_adjoint(taken):
    class Doubled(Orthogonal):
        def transform(self, y, table):
            return 2 * super().transform(y, table)

    linear_attention(*inputs(torch.float32), Encoding(Householder(D), Doubled(D)), **BOTH_WAYS)
    assert not taken
    linear_attention(*inputs(torch.float32), Encoding(Householder(D), Orthogonal(D)), **BOTH_WAYS)
    assert len(taken) == 1


def test_so_do_decay_borders_causality_half_precision_and_transforms(taken):
    encode = fixed("rope")
    q, k, v = (x.detach() for x in inputs(torch.float32))
    linear_attention(q, k, v, encode, decay=None)
    linear_attention(q, k, v, encode, summation="bidirectional", decay=[0.5, 0.9])
    linear_attention(q, k, v, encode, **BOTH_WAYS, sequences=torch.tensor([[0, 0, 0, 1, 1, 1, 1]]))
    linear_attention(*(x.bfloat16() for x in (q, k, v)), encode, **BOTH_WAYS)
    torch.func.grad(lambda q: linear_attention(q, k, v, encode, **BOTH_WAYS)[0].sum())(q)
    assert not taken
    table = encode.table(sequence(7)[None])
    assert can_fuse(encode, (table, table), q, k, v)

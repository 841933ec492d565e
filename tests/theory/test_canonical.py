"""Equation 1: each encoding against its own paper's formula, pair by pair, and the laws that all forms share."""

import math

import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from lrpe.encodings.encoding import Encoding
from lrpe.encodings.family import FAMILY, encoding
from lrpe.errors import LrpeError
from lrpe.theory.canonical import CanonicalForm, Primitive, ones
from lrpe.theory.instances import RPR, Additive, CosFormer, DeBERTa, FamilyForm, T5Buckets
from lrpe.theory.linearizability import linearizability

D = 4
FORMS = {
    "additive": lambda: Additive(D, max_distance=3),
    "t5": lambda: T5Buckets(D, num_buckets=8, max_distance=10),
    "t5-causal": lambda: T5Buckets(D, bidirectional=False, num_buckets=8, max_distance=10),
    "rpr": lambda: RPR(D, max_distance=3),
    "deberta": lambda: DeBERTa(D, max_distance=3),
    "cosformer": lambda: CosFormer(D, alpha=0.3),
    "family": lambda: FamilyForm(encoding("fourier*unitary", D)),
}
every_form = pytest.mark.parametrize("form", [pytest.param(make().double(), id=name) for name, make in FORMS.items()])


class Mixture(CanonicalForm):
    """Complex and rectangular primitives that no paper has: the sum and its stacking must not lean on special ones."""

    linearizable = False

    def __init__(self):
        super().__init__(D)
        self.asked = []

    def primitives(self):
        return (
            Primitive(lambda q: torch.complex(q, 2 * q), lambda k: k[..., :3], lambda u: self.draw(u, D, 3)),
            Primitive(ones, lambda k: torch.cat([k, 1j * k], -1), lambda u: self.draw(u, 1, 2 * D)),
            Primitive(lambda q: (1 + 1j) * q, lambda k: (2 - 1j) * k, lambda u: (0.2 * u).cos()),
        )

    def draw(self, offsets, rows, columns):
        self.asked += offsets.tolist()
        phase = torch.arange(rows * columns).reshape(rows, columns) + 0.7 * offsets[:, None, None].double()
        return torch.polar(torch.ones_like(phase), phase)


def rows(*shape, seed=0):
    return torch.randn(*shape, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pair_by_pair(f, q, k, query_positions, key_positions):
    """The matrix of f(q_s, k_t, s, t), by two loops."""
    return torch.stack(
        [
            torch.stack([f(q[i], k[j], int(s), int(t)) for j, t in enumerate(key_positions)])
            for i, s in enumerate(query_positions)
        ]
    )


def assert_formula(form, f, s=(-9, -2, 0, 1, 5), t=(7, 0, -3, -2, 5, 6, 12)):
    q, k, s, t = rows(len(s), seed=1), rows(len(t), seed=2), torch.tensor(s), torch.tensor(t)
    torch.testing.assert_close(form.scores(q, k, s, t), pair_by_pair(f, q, k, s, t))


def test_additive_adds_a_number_for_the_clipped_distance():
    form = Additive(D, max_distance=3).double()
    assert form.w.shape == (7,)
    assert_formula(form, lambda q, k, s, t: q.dot(k) + form.w[max(-3, min(3, t - s)) + 3])


def test_rpr_adds_the_query_times_a_vector_for_the_clipped_distance():
    form = RPR(D, max_distance=3).double()
    assert form.w.shape == (7, D)
    assert_formula(form, lambda q, k, s, t: q.dot(k) + q.dot(form.w[max(-3, min(3, t - s)) + 3]))


@pytest.mark.parametrize("c", [1, 3])
def test_deberta_is_content_and_the_two_cross_terms_with_its_g(c):
    form = DeBERTa(D, max_distance=c).double()
    assert form.k_bar.shape == form.q_bar.shape == (2 * c, D)

    def g(x):
        if x <= -c:
            return 0
        return 2 * c - 1 if x >= c else x + c

    assert_formula(form, lambda q, k, s, t: q.dot(k) + q.dot(form.k_bar[g(s - t)]) + form.q_bar[g(t - s)].dot(k))


def test_cosformer_weighs_the_product_by_the_cosine_of_the_distance():
    assert_formula(CosFormer(D, alpha=0.3), lambda q, k, s, t: q.dot(k) * math.cos(0.3 * (t - s)))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"),
    [(32, 128), (5, 3), (64, 1000), (10, 160), (20, 160), (8, 289)],  # in the last three the order of rounding shows
)
def test_t5_buckets_are_those_of_transformers(bidirectional, num_buckets, max_distance):
    offsets = torch.arange(-3000, 3001)
    ours = T5Buckets(D, bidirectional, num_buckets, max_distance).row(offsets)
    theirs = T5Attention._relative_position_bucket(offsets, bidirectional, num_buckets, max_distance)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5_scores_are_the_product_and_the_bias_of_transformers(bidirectional):
    config = T5Config(d_model=D, num_heads=1, d_kv=D, is_decoder=not bidirectional)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    form = T5Buckets(D, bidirectional)
    form.load_state_dict({"w": theirs.relative_attention_bias.weight[:, 0].detach()})
    q, k = rows(150, seed=1).float(), rows(200, seed=2).float()
    torch.testing.assert_close(form.scores(q, k), q @ k.mT + theirs.compute_bias(150, 200)[0, 0])


@pytest.mark.parametrize("name", [*FAMILY, "fourier*unitary", "fourier*permutation", "learned*orthogonal"])
def test_a_member_of_the_family_scores_as_its_features_multiply(name):
    encode = encoding(name, D, length=50) if name in ("cosformer", "hope") else encoding(name, D)
    assert isinstance(encode, Encoding)
    if name == "pope":
        torch.nn.init.normal_(encode.matrix.angles.delta)
    q, k, s, t = rows(2, 5, seed=1), rows(2, 7, seed=2), torch.arange(-3, 2), torch.arange(100, 107)
    expected = encode(q, s) @ encode.key(k, encode.table(t, k.dtype)).mT
    torch.testing.assert_close(FamilyForm(encode).scores(q, k, s, t), expected.detach())


@pytest.mark.parametrize("name", ["rope", "type1", "type3", "fourier*permutation"])
def test_the_matrices_of_the_family_are_unitary_and_obey_its_law(name):
    W = FamilyForm(encoding(name, D)).relative
    identity = torch.eye(D, dtype=W(0).dtype)
    assert W(0).is_complex() == (name in ("type1", "fourier*permutation"))
    torch.testing.assert_close(W(0), identity)
    torch.testing.assert_close(W(3).mH @ W(3), identity)
    torch.testing.assert_close(W(3).mH @ W(-2), W(-5))


def test_cosformer_is_the_member_of_the_family_with_that_name():
    q, k = rows(6, seed=1), rows(6, seed=2)
    member = FamilyForm(encoding("cosformer", D, length=50))
    torch.testing.assert_close(CosFormer(D, math.pi / 100).scores(q, k), member.scores(q, k), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("form", [pytest.param(Mixture(), id="mixture"), *every_form.args[1]])
def test_the_sum_of_primitives_is_one_product_with_the_stacked_matrix(form):
    q, k, s, t = rows(4, seed=1), rows(5, seed=2), torch.tensor([-3, 0, 1, 8]), torch.tensor([2, -7, 0, 1, 3])
    q_hat, k_hat = form.queries(q), form.keys(k)

    def stacked(i, j):
        W = form.relative(int(t[j] - s[i]))
        return (q_hat[i].conj().to(W.dtype) @ W @ k_hat[j].to(W.dtype)).real

    expected = torch.stack([torch.stack([stacked(i, j) for j in range(5)]) for i in range(4)])
    torch.testing.assert_close(form.scores(q, k, s, t), expected)


def test_the_stacked_matrix_has_the_primitives_as_blocks_and_zeros_elsewhere():
    form = DeBERTa(2, max_distance=3)
    with torch.no_grad():
        W = form.relative(2)
    (a, b), (c, d) = form.k_bar[-2 + 3].tolist(), form.q_bar[2 + 3].tolist()
    assert W.tolist() == [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, a, 0, 0], [0, 0, b, 0, 0], [0, 0, 0, c, d]]


def test_each_matrix_is_evaluated_once_for_each_distinct_distance():
    form = Mixture()
    form.scores(rows(2, 6), rows(2, 6), torch.arange(12).reshape(2, 6), torch.arange(6))
    assert sorted(form.asked) == sorted(2 * list(range(-11, 6)))


@every_form
def test_shifting_all_positions_changes_nothing(form):
    q, k, s = rows(6, seed=1), rows(6, seed=2), torch.arange(6)
    torch.testing.assert_close(form.scores(q, k, s - 1000, s - 1000), form.scores(q, k))


@every_form
def test_rows_of_a_batch_have_their_own_positions_and_keys_may_be_shared(form):
    q, k = rows(2, 3, 4, seed=1), rows(2, 1, 5, seed=2)
    s, t = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8]]), torch.tensor([[0, 1, 2, 3, 4], [-1, 0, 1, 9, 10]])
    scores = form.scores(q, k, s, t)
    assert scores.shape == (2, 3, 4, 5)
    for b in range(2):
        for h in range(3):
            torch.testing.assert_close(scores[b, h], form.scores(q[b, h], k[b, 0], s[b], t[b]))


@every_form
def test_scores_keep_the_dtype_and_are_rounded_once(form):
    q, k = rows(6, seed=1).bfloat16(), rows(6, seed=2).bfloat16()
    assert torch.equal(form.scores(q, k), form.scores(q.float(), k.float()).bfloat16())
    assert form.scores(q[:0], k).shape == (0, 6)


@pytest.mark.parametrize("name", ["additive", "t5", "t5-causal", "rpr", "deberta"])
def test_the_gradient_reaches_every_learned_table(name):
    form = FORMS[name]().double()
    q, k = rows(3, seed=1), rows(4, seed=2)
    names, tables = zip(*form.named_parameters(), strict=True)

    def scores(*tables):
        return torch.func.functional_call(form, dict(zip(names, tables, strict=True)), (q, k))

    assert torch.autograd.gradcheck(scores, tables)
    for gradient in torch.autograd.grad(form.scores(q, k).square().sum(), tables):
        assert gradient.abs().sum() > 0


@every_form
def test_what_a_form_declares_is_what_is_measured(form):
    assert form.linearizable == bool(linearizability(form.relative))


@pytest.mark.parametrize("name", FORMS)
def test_a_saved_form_is_the_form_that_is_loaded(name):
    form, other = FORMS[name](), FORMS[name]()
    with torch.no_grad():
        for parameter in form.parameters():
            parameter.add_(1)
    other.load_state_dict(form.state_dict())
    assert torch.equal(other.scores(rows(5), rows(5)), form.scores(rows(5), rows(5)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Additive(D).scores(rows(3)[..., :2], rows(3)), "head_dim=4"),
        (lambda: Additive(D).scores(rows(3), rows(3)[..., :2]), "head_dim=4"),
        (lambda: Additive(D).queries(rows(3)[..., :2]), "head_dim=4"),
        (lambda: Additive(D).keys(rows(3)[..., :2]), "head_dim=4"),
        (lambda: RPR(D).scores(rows(3), rows(3), torch.arange(3.0)), "integers"),
        (lambda: RPR(D).scores(rows(3), rows(3), None, torch.arange(3.0)), "integers"),
        (lambda: RPR(D).scores(rows(3), rows(3), torch.arange(4)), "4 positions for 3 rows"),
        (lambda: RPR(D).scores(rows(2, 3), rows(2, 3), torch.zeros(3, 3).long()), "3 rows of positions"),
        (lambda: RPR(D).scores(rows(2, 3), rows(4, 3)), "broadcast"),
        (lambda: RPR(D).relative(0.5), "integer"),  # type: ignore[arg-type]
        (lambda: Additive(D, max_distance=0), "max_distance=0"),
        (lambda: RPR(D, max_distance=0), "max_distance=0"),
        (lambda: DeBERTa(D, max_distance=0), "max_distance=0"),
        (lambda: T5Buckets(D, max_distance=0), "max_distance=0"),
        (lambda: T5Buckets(D, max_distance=8), "max_distance must exceed 8"),
        (lambda: T5Buckets(D, num_buckets=3), "num_buckets=3"),
        (lambda: Additive(0), "head_dim=0"),
        (lambda: CosFormer(D, alpha=math.nan), "finite"),
        (lambda: FamilyForm(encoding("rope", D, heads=2)), "heads=2"),
        (lambda: FamilyForm(encoding("rope", D, decay=(0.9,))), "a decay"),
        (lambda: FamilyForm(encoding("rope", D, axes=2)), "axes=2"),
        (lambda: FamilyForm(encoding("spe", D, heads=2)), "StochasticEncoding"),
    ],
)
def test_a_broken_law_is_named(wrong, message):
    with pytest.raises(LrpeError, match=message):
        wrong()


def test_a_matrix_that_does_not_fit_its_parts_is_named():
    form = Mixture()
    form.draw = lambda offsets, rows, columns: torch.zeros(len(offsets), columns, rows)
    with pytest.raises(LrpeError, match=r"\(3, 4, 3\).*got \(3, 3, 4\)"):
        form.scores(rows(2), rows(2))

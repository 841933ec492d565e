"""α: the listing's kinds a, b and c, cosFormer's, and s·α."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from lrpe import Angles, LrpeError, encoding
from lrpe.encodings.angles import constant, geometric, harmonic, linear

counts = st.integers(1, 40)
lengths = st.integers(1, 5000)


@given(count=counts, length=lengths, base=st.floats(2, 1e6))
def test_the_kinds_of_angles_are_their_formulas(count, length, base):
    quarter = math.pi / 2 / length
    formulas = {
        geometric(count, 2 * count, base): lambda k: base ** (-2 * k / (2 * count)),
        linear(count, length): lambda k: quarter * (k + 1) / count,
        harmonic(count, length): lambda k: quarter / (k + 1),
        constant(count, length): lambda k: quarter,
    }
    for alpha, formula in formulas.items():
        exact = torch.tensor([formula(k) for k in range(count)], dtype=torch.float64)
        assert_close(alpha, exact, rtol=1e-15, atol=0)


@pytest.mark.parametrize(("name", "count"), [("type1", 10), ("type2", 5), ("rope", 5), ("cosformer", 10)])
def test_type_1_has_an_angle_for_each_dimension_and_type_2_for_each_pair(name, count):
    encode = encoding(name, 10, length=100)
    geometric = 10000 ** (-2 * torch.arange(count, dtype=torch.float64) / 10)
    expected = {"cosformer": constant(10, 100)}.get(name, geometric)
    assert_close(encode.matrix.angles.alpha, expected, check_dtype=False)


@pytest.mark.parametrize("kind", ["linear", "harmonic"])
def test_the_fastest_angle_makes_a_quarter_turn_over_the_length(kind):
    alpha = encoding("type2", 8, angles=kind, length=512).matrix.angles.alpha
    assert float(alpha.max() * 512) == pytest.approx(math.pi / 2)


@given(s=st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=4))
def test_angles_are_formed_in_float64(s):
    angles = Angles(torch.tensor([[1.0, 0.1], [0.3, 1e-8]]))
    exact = [[[position * float(a) for a in row] for position in s] for row in angles.alpha]
    angle = angles(torch.tensor([s]))
    assert angle.dtype == torch.float64
    assert_close(angle[0], torch.tensor(exact, dtype=torch.float64), rtol=1e-15, atol=0)


def test_given_angles_are_copied():
    alpha = torch.ones(4)
    angles = Angles(alpha, learned=True)
    alpha += 1
    assert torch.equal(angles.alpha.detach(), torch.ones(4))


def test_angles_are_learned_only_if_asked():
    assert [name for name, _ in encoding("rope", 8).named_parameters()] == []
    assert [name for name, _ in encoding("type2", 8).named_parameters()] == ["matrix.angles.log_alpha"]
    assert [name for name, _ in encoding("type1", 8).named_parameters()] == ["matrix.angles.log_alpha"]


GIVEN = torch.tensor([1.0, 0.1, 1e-6, -0.3, 0.0], dtype=torch.float64)


def test_a_learned_angle_begins_exactly_as_given_with_its_sign():
    angles = Angles(GIVEN, learned=True)
    assert angles.log_alpha.dtype == torch.float32
    assert torch.equal(angles.alpha, GIVEN)


def test_adam_changes_slow_and_fast_angles_by_the_same_ratio_and_an_angle_of_0_stays_0():
    angles = Angles(GIVEN, learned=True)
    optimizer = torch.optim.Adam(angles.parameters(), lr=0.01, eps=1e-30)
    angles(torch.tensor([[3]])).square().sum().backward()
    optimizer.step()
    assert_close(angles.alpha, GIVEN * math.exp(-0.01), rtol=1e-6, atol=0)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_learned_alpha_of_an_earlier_version_is_loaded_exactly(assign, dtype):
    angles, saved = Angles(torch.ones(5), learned=True), {"alpha": GIVEN.to(dtype)}
    torch.nn.init.ones_(angles.log_alpha)
    angles.load_state_dict(saved, assign=assign)
    assert torch.equal(angles.alpha, saved["alpha"].double())
    assert set(saved) == {"alpha"}
    assert set(angles.state_dict()) == {"start", "log_alpha"}
    assert angles.log_alpha.requires_grad


def test_what_was_learned_can_be_loaded_as_fixed_and_learned_on_from_there():
    learned, fixed, again = Angles(GIVEN, learned=True), Angles(torch.ones(5)), Angles(torch.ones(5), learned=True)
    torch.nn.init.uniform_(learned.log_alpha, -1, 1)
    fixed.load_state_dict(learned.state_dict())
    again.load_state_dict(fixed.state_dict())
    assert torch.equal(fixed.alpha, learned.alpha)
    assert torch.equal(again.alpha, learned.alpha)


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (lambda: Angles(torch.ones(1, 2, 3)), "(1, 2, 3)"),
        (lambda: Angles(torch.tensor(1.0)), "()"),
        (lambda: Angles(torch.arange(3)), "torch.int64"),
        (lambda: Angles(torch.ones(3, dtype=torch.complex64)), "torch.complex64"),
        (lambda: geometric(4, 8, base=1.0), "base=1.0"),
        (lambda: linear(4, 0), "length=0"),
        (lambda: harmonic(4, -1), "length=-1"),
    ],
)
def test_angles_that_cannot_be_are_refused(make, value):
    with pytest.raises(LrpeError) as error:
        make()
    assert value in str(error.value)

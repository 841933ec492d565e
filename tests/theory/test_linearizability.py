"""What growing windows say of a relative matrix W(t-s)."""

import json
import math

import pytest
import torch

from lrpe import LrpeError, encoding, linearizability
from lrpe.theory import Additive, DeBERTa


def ranks(W):
    return [window.rank for window in linearizability(W).windows]


def test_an_exponential_is_linearizable_with_two_different_factors():
    measured = linearizability(lambda s: 0.9**s)
    assert ranks(lambda s: 0.9**s) == [1] * 7
    assert measured
    assert measured.verdict == "two factors"
    assert measured.windows[-1].asymmetry > 0.1


def test_a_two_sided_exponential_is_positive_but_not_linearizable():
    measured = linearizability(lambda s: 0.9 ** abs(s))
    assert not measured
    assert [w.rank for w in measured.windows] == [w.n for w in measured.windows]
    assert measured.windows[-1].asymmetry == 0
    assert measured.windows[-1].least_eigenvalue > 0


@pytest.mark.parametrize("alpha", [0.3, 1.0, math.pi / 1024])
def test_a_cosine_needs_one_factor_of_height_two(alpha):
    measured = linearizability(lambda s: math.cos(alpha * s))
    assert [w.rank for w in measured.windows] == [2] * 7
    assert measured.verdict == "one factor"


def test_a_sine_needs_two_factors():
    assert linearizability(lambda s: math.sin(0.3 * s)).verdict == "two factors"


def test_a_rotation_is_definition_3_1():
    def W(s):
        return torch.tensor([[math.cos(s), -math.sin(s)], [math.sin(s), math.cos(s)]], dtype=torch.float64)

    measured = linearizability(W)
    assert measured.verdict == "definition"
    assert {w.rank for w in measured.windows} == {2}


def test_a_rotation_in_float32_is_still_recognised():
    def W(s):
        return torch.tensor([[math.cos(s), -math.sin(s)], [math.sin(s), math.cos(s)]])

    assert linearizability(W).verdict == "definition"


def test_a_scaled_identity_is_one_factor_but_not_the_definition():
    assert linearizability(lambda s: 2.0).verdict == "one factor"


@pytest.mark.parametrize("name", ["type1", "type2", "type3", "fourier*unitary", "half-rotated", "none"])
def test_every_member_of_the_family_is_definition_3_1(name):
    member = encoding(name, head_dim=8)
    P = member.basis.dense()
    measured = linearizability(lambda s: P.mH @ member.matrix.dense(s) @ P)
    assert measured.verdict == "definition"
    assert measured.windows[-1].rank == 8


def test_a_rectangular_relative_matrix_is_measured_too():
    measured = linearizability(lambda s: torch.tensor([[0.5**s, 1.0]], dtype=torch.float64))
    assert measured.shape == (1, 2)
    assert measured.verdict == "two factors"


def test_a_random_table_of_offsets_is_not_linearizable():
    w = torch.randn(511, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert not linearizability(lambda s: w[s + 255])


def test_the_report_prints_every_window_and_the_verdict():
    text = str(linearizability(lambda s: 0.9**s))
    assert "128" in text
    assert "A_sᴴ B_t" in text


@pytest.mark.parametrize(
    ("W", "law"),
    [
        (lambda s: torch.ones(3), "a matrix or a number"),
        (lambda s: torch.ones(1 + (s > 0), 2), "one shape"),
        (lambda s: float("nan"), "finite"),
    ],
)
def test_what_is_no_relative_matrix_is_refused(W, law):
    with pytest.raises(LrpeError, match=law):
        linearizability(W)


@pytest.mark.slow
@pytest.mark.parametrize("form", [Additive, DeBERTa])
def test_forms_as_wide_as_a_real_head_are_still_seen_to_grow(form):
    assert linearizability(form(64).relative).verdict == "none"


@pytest.mark.slow
def test_a_wide_two_sided_exponential_is_not_linearizable():
    assert not linearizability(lambda s: 0.9 ** abs(s) * torch.eye(100, dtype=torch.float64))


def test_many_cosines_have_a_rank_that_ends_growing():
    measured = linearizability(lambda s: sum(math.cos(s * a / 13) for a in range(1, 41)) / 40)
    assert measured.verdict == "one factor"


def test_the_dictionary_is_json_for_a_rectangular_matrix_too():
    measured = linearizability(lambda s: torch.ones(1, 2))
    assert json.loads(json.dumps(measured.to_dict(), allow_nan=False))["windows"][0]["asymmetry"] is None

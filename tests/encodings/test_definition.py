"""The verifier accepts what obeys the laws and rejects what does not."""

import json
import math

import pytest
import torch

import lrpe
from lrpe.encodings.family import FAMILY

ALPHA = torch.tensor([1.0, 0.3], dtype=torch.float64)


def rotation(*angles):
    """The block-diagonal rotation by the angles, in float64."""
    turns = [[[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]] for a in angles]
    return torch.block_diag(*torch.tensor(turns, dtype=torch.float64))


def held(report):
    return {law.equation: law.holds for law in report.laws}


@pytest.mark.parametrize("name", sorted(FAMILY))
@pytest.mark.parametrize("changes", [{"head_dim": 7}, {"head_dim": 8, "axes": 2}, {"head_dim": 6, "heads": 3}])
def test_every_member_of_the_family_obeys_every_law(name, changes):
    report = lrpe.verify(lrpe.encoding(name, length=100, **changes))
    assert report, str(report)
    assert len(report.laws) == 6


def test_a_trained_encoding_still_obeys_the_laws():
    encoding = lrpe.encoding("type2", head_dim=8, learned_basis=True)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn_like(parameter))
    assert lrpe.verify(encoding)


def test_the_encoding_is_left_as_it_was():
    encoding = lrpe.encoding("type2", head_dim=8).train()
    before = {name: tensor.clone() for name, tensor in encoding.state_dict().items()}
    lrpe.verify(encoding)
    assert encoding.training
    assert all(tensor.dtype == before[name].dtype for name, tensor in encoding.state_dict().items())
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoding.state_dict().items())


def test_spe_is_not_exactly_relative():
    report = lrpe.verify(lrpe.encoding("spe", head_dim=4, heads=2))
    assert not report
    assert "in expectation" in str(report)


def test_a_rotation_given_as_a_factor_is_accepted():
    assert lrpe.verify(lambda s: rotation(s * 1.0, s * 0.3))


def test_a_rotation_computed_in_float32_is_accepted_with_float32_tolerance():
    assert lrpe.verify(lambda s: rotation(s * 1.0).float())


def test_a_tall_factor_is_accepted_and_says_why_proposition_3_2_is_not_measured():
    report = lrpe.verify(lambda s: torch.cat([torch.diag(torch.cos(s * ALPHA)), torch.diag(torch.sin(s * ALPHA))]))
    assert report
    assert "4 × 2" in str(report)


def test_angles_that_grow_with_the_square_of_the_position_are_rejected():
    report = lrpe.verify(lambda s: rotation(0.1 * s * s))
    assert not report
    assert not held(report)["M_{s+c}ᴴ M_{t+c} = M_sᴴ M_t"]
    assert held(report)["W_0 = M_sᴴ M_s = I"]


def test_a_growing_scale_is_rejected():
    report = lrpe.verify(lambda s: 1.001**s * torch.eye(2, dtype=torch.float64))
    assert not report
    assert not held(report)["W_0 = M_sᴴ M_s = I"]


def test_a_scale_that_overflows_is_rejected_too():
    assert not lrpe.verify(lambda s: torch.tensor(2.0, dtype=torch.float64) ** (s * 10) * torch.eye(2))


def test_a_cosine_without_its_sine_is_rejected():
    assert not lrpe.verify(lambda s: torch.diag(torch.cos(s * ALPHA)))


def test_a_constant_minus_identity_is_rejected_as_a_relative_matrix():
    report = lrpe.verify(relative=lambda s: torch.eye(2).double() * (1 if s == 0 else -1))
    assert not report
    assert held(report)["W_sᴴ W_s = I"]
    assert not held(report)["W_s = W_1^s"]


def test_an_alternating_minus_identity_is_accepted_as_a_relative_matrix():
    report = lrpe.verify(relative=lambda s: torch.eye(2).double() * (-1) ** s)
    assert report
    assert report.linearizability is not None
    assert report.linearizability.verdict == "definition"


def test_a_relative_cosine_breaks_proposition_3_2_and_is_linearizable_all_the_same():
    report = lrpe.verify(relative=lambda s: math.cos(0.3 * s))
    assert not report
    assert report.linearizability is not None
    assert report.linearizability.verdict == "one factor"


def test_an_additive_sinusoid_is_rejected_because_it_is_not_linear():
    report = lrpe.verify(map=lambda x, s: x + torch.sin(s * ALPHA), dim=2)
    assert not report
    assert not held(report)["f(ax + by, s) = a f(x, s) + b f(y, s)"]


def test_a_linear_map_that_rotates_is_accepted():
    assert lrpe.verify(map=lambda x, s: rotation(0.7 * s) @ x, dim=2)


def test_the_report_is_json_and_prints_every_law():
    report = lrpe.verify(lrpe.encoding("type2", head_dim=4))
    values = json.loads(json.dumps(report.to_dict()))
    assert values["holds"] is True
    assert len(values["laws"]) == 6
    assert all(law.equation in str(report) for law in report.laws)


@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        ({}, "one of"),
        ({"subject": lambda s: 1.0, "relative": lambda s: 1.0}, "one of"),
        ({"subject": 3}, "got int"),
        ({"map": lambda x, s: x}, "needs dim="),
        ({"relative": lambda s: torch.ones(2, 3)}, "2 × 3"),
    ],
)
def test_what_cannot_be_verified_is_refused(arguments, law):
    with pytest.raises(lrpe.LrpeError, match=law):
        lrpe.verify(**arguments)


def test_a_map_and_a_numpy_factor_in_float32_are_judged_by_float32s_digits():
    assert lrpe.verify(map=lambda x, s: rotation(0.7 * s).float() @ x.float(), dim=2)
    assert lrpe.verify(lambda s: rotation(0.7 * s).float().numpy())


def test_a_number_that_overflows_is_rejected():
    assert not lrpe.verify(relative=lambda s: 2.0**s)


def test_powers_of_a_wide_learned_basis_hold():
    assert lrpe.verify(lrpe.encoding("learned*unitary", 128))


def test_a_decay_is_not_measured_and_the_report_says_so():
    assert "decay" in str(lrpe.verify(lrpe.encoding("per", head_dim=4, heads=2)))


@pytest.mark.parametrize("subject", [lrpe.SinusoidalPositions(8), lrpe.CosFormer(8, 0.1)])
def test_modules_that_encode_no_queries_and_keys_are_refused(subject):
    with pytest.raises(lrpe.LrpeError, match=type(subject).__name__):
        lrpe.verify(subject)


def test_a_tolerance_of_zero_is_a_tolerance():
    assert not lrpe.verify(lrpe.encoding("type2", head_dim=8), tolerance=0)

"""The verifier accepts what obeys the laws and rejects what does not."""

import json
import math

import pytest
import torch

import lrpe
from lrpe.encodings.family import FAMILY

LINEAR = "M_s (ax + by) = a M_s x + b M_s y"
SHIFTED = "M_{s+c}ᴴ M_{t+c} = M_sᴴ M_t"
BATCHES = "rows of a batch are encoded as alone"
PRECISION = "M_s x in float32, bfloat16, float16, in units of rounding"
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
    if name in ("selective", "selective-free", "switched", "mamba3") and "axes" in changes:
        pytest.skip("steps from the tokens lead along a sequence, not over a grid")
    report = lrpe.verify(lrpe.encoding(name, length=100, **changes))
    assert report, str(report)
    assert len(report.laws) == (12 if name == "pope" else 9)  # PoPE's phase of the key has three of its own


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
    assert not held(report)[LINEAR]


def test_a_linear_map_that_rotates_is_accepted():
    assert lrpe.verify(map=lambda x, s: rotation(0.7 * s) @ x, dim=2)


def test_the_report_is_json_and_prints_every_law():
    report = lrpe.verify(lrpe.encoding("type2", head_dim=4))
    values = json.loads(json.dumps(report.to_dict()))
    assert values["holds"] is True
    assert len(values["laws"]) == 9
    assert "every position from -2048 to 2048, 26 up to ±1,000,000" in values["tested"]
    assert "tolerance 1.0e-08" in values["tested"]
    assert all(law.equation in str(report) for law in report.laws)


@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        ({}, "one of"),
        ({"subject": lambda s: 1.0, "relative": lambda s: 1.0}, "one of"),
        ({"subject": 3}, "got int"),
        ({"map": lambda x, s: x}, r"dim must be given for verify\(map=f\)"),
        ({"relative": lambda s: torch.ones(2, 3)}, "2 × 3"),
    ],
)
def test_what_cannot_be_verified_is_refused(arguments, law):
    with pytest.raises(lrpe.LrpeError, match=law):
        lrpe.verify(**arguments)


def test_a_numpy_factor_in_float32_is_judged_by_float32s_digits():
    assert lrpe.verify(lambda s: rotation(0.7 * s).float().numpy())


def test_a_number_that_overflows_is_rejected():
    assert not lrpe.verify(relative=lambda s: 2.0**s)


@pytest.mark.slow
def test_powers_of_a_wide_learned_basis_hold():
    assert lrpe.verify(lrpe.encoding("learned*unitary", 128))


def test_a_decay_is_not_measured_and_the_report_says_so():
    assert "decay" in str(lrpe.verify(lrpe.encoding("per", head_dim=4, heads=2)))


@pytest.mark.parametrize("subject", [lrpe.encodings.SinusoidalPositions(8), lrpe.theory.CosFormer(8, 0.1)])
def test_modules_that_encode_no_queries_and_keys_are_refused(subject):
    with pytest.raises(lrpe.LrpeError, match=type(subject).__name__):
        lrpe.verify(subject)


def test_a_tolerance_of_zero_is_a_tolerance():
    assert not lrpe.verify(lrpe.encoding("type2", head_dim=8), tolerance=0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("place", [5, -2048])
def test_one_position_that_is_twisted_is_found_whatever_the_seed(place, seed):
    report = lrpe.verify(lambda s: rotation(0.3 * s + 0.01 * (s == place)), seed=seed)
    assert not held(report)[SHIFTED]


@pytest.mark.parametrize("border", [1500, 2001, 100_000])
def test_positions_that_are_clipped_are_found(border):
    assert not lrpe.verify(map=lambda x, s: rotation(0.3 * max(-border, min(border, s))) @ x, dim=2)


class Twisted(lrpe.Orthogonal):
    """A Λ whose table is wrong at one position, and whose dense matrices are right."""

    def table(self, positions, dtype=torch.float32):
        return super().table(torch.where(positions == 1234, 0, positions), dtype)


class TwistedMatrix(lrpe.Orthogonal):
    """The other way round."""

    def dense(self, *s):
        return super().dense(*(0 if a == 77 else a for a in s))


class FirstRow(lrpe.Orthogonal):
    """A Λ whose table has the positions of the first row of a batch for all rows."""

    def table(self, positions, dtype=torch.float32):
        return super().table(positions[:1], dtype)


class Rounded(lrpe.Orthogonal):
    """A Λ that forgets digits where float32 asks for them."""

    def table(self, positions, dtype=torch.float32):
        (turn,) = super().table(positions, dtype)
        return (turn if dtype == torch.float64 else turn.bfloat16().to(dtype),)


class Clamped(lrpe.Identity):
    """A P that is linear for small vectors alone."""

    def transform(self, x, table):
        return x.clamp(-100, 100)


@pytest.mark.parametrize(
    ("encoding", "law"),
    [
        (lrpe.Encoding(lrpe.Identity(6), Twisted(6)), SHIFTED),
        (lrpe.Encoding(lrpe.Identity(6), TwistedMatrix(6)), "M_sᴴ M_t = Re W_{t-s}"),
        (lrpe.Encoding(lrpe.Identity(6), FirstRow(6)), BATCHES),
        (lrpe.Encoding(lrpe.Identity(6), Rounded(6)), PRECISION),
        (lrpe.Encoding(Clamped(6), lrpe.Orthogonal(6)), LINEAR),
    ],
)
def test_each_fault_of_a_plug_in_breaks_its_law(encoding, law):
    assert not held(lrpe.verify(encoding))[law]


class NoHeadAxis(lrpe.Orthogonal):
    def table(self, positions, dtype=torch.float32):
        return tuple(t[:, 0] for t in super().table(positions, dtype))


def test_a_table_without_the_axis_of_heads_is_refused():
    with pytest.raises(lrpe.LrpeError, match=r"\(batch or 1, heads or 1, n, width\)"):
        lrpe.verify(lrpe.Encoding(lrpe.Identity(6), NoHeadAxis(6)))


@pytest.mark.parametrize(
    "changed",
    [
        lambda x: x.clamp(-100, 100),
        lambda x: torch.where(x.abs() < 1e-3, 0, x),
        lambda x: x * (1 if x.norm() < 20 else 1.1),
        lambda x: x * (1 if x.norm() > 0.05 else 1.1),
    ],
)
def test_a_map_that_is_linear_for_vectors_of_some_lengths_alone_is_rejected(changed):
    report = lrpe.verify(map=lambda x, s: rotation(0.3 * s) @ changed(x), dim=2)
    assert not held(report)[LINEAR]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_is_judged_by_its_digits_and_no_more(dtype):
    report = lrpe.verify(lambda s: rotation(0.3 * s).to(dtype))
    assert report, str(report)
    assert "every position from -2048 to 2048;" in report.tested
    assert lrpe.verify(map=lambda x, s: rotation(0.3 * s).to(dtype) @ x.to(dtype), dim=2)
    assert not lrpe.verify(lambda s: rotation(0.3 * s + 0.1 * (s == 7)).to(dtype))


def test_a_table_is_verified_as_far_as_it_goes():
    table = [rotation(0.3 * s) for s in range(600)]
    for report in (
        lrpe.verify(lambda s: table[s], from_zero=True),
        lrpe.verify(relative=lambda s: table[s], from_zero=True),
        lrpe.verify(dict(enumerate(table)).__getitem__),  # which has no negative positions, and says so
    ):
        assert report, str(report)
        assert "every position from 0 to 599;" in report.tested
        assert "known from 0 to 599 alone" in str(report)
    table[321] = rotation(0.3 * 322)
    assert not lrpe.verify(lambda s: table[s], from_zero=True)


def test_positions_from_zero_on_are_asked_for_alone():
    def M(s):
        assert s >= 0
        return rotation(0.3 * s)

    report = lrpe.verify(M, from_zero=True)
    assert report
    assert "every position from 0 to 2048, 25 up to 1,000,000" in report.tested
    assert lrpe.verify(lrpe.encoding("type2", 6, axes=2), from_zero=True)


def test_of_a_table_of_few_positions_nothing_can_be_told():
    table = [rotation(0.3 * s) for s in range(9)]
    report = lrpe.verify(lambda s: table[s], from_zero=True)
    assert not report
    assert {law.verdict for law in report.laws} == {"cannot tell"}
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False))["laws"][0]["verdict"] == "cannot tell"


class Rotary(torch.nn.Module):
    """RoPE as other libraries have it: rows and their positions."""

    def __init__(self, dim, power=1):
        super().__init__()
        self.register_buffer("alpha", 10000 ** (-torch.arange(0, dim, 2) / dim))
        self.power = power

    def forward(self, x, positions):
        angle = positions[..., None] ** self.power * self.alpha
        even, odd = x[..., ::2], x[..., 1::2]
        turned = [even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()]
        return torch.stack(turned, -1).flatten(-2)


class FactorModule(torch.nn.Module):
    def forward(self, s):
        return rotation(0.3 * s)


def test_modules_are_verified_as_functions_are():
    report = lrpe.verify(Rotary(8), dim=8)
    assert report, str(report)
    assert held(report)[BATCHES]
    assert not lrpe.verify(Rotary(8, power=2), dim=8)
    assert lrpe.verify(FactorModule())
    assert lrpe.verify(lrpe.Permutation(6, heads=2))
    assert lrpe.verify(lrpe.encodings.Fourier(5))
    assert not lrpe.verify(Twisted(6))


class OneSequence(Rotary):
    def forward(self, x, positions):
        if positions.ndim != 1:
            raise lrpe.LrpeError("positions are (n,)")
        return super().forward(x, positions)


def test_a_module_without_batches_of_positions_is_verified_without():
    report = lrpe.verify(OneSequence(8), dim=8)
    assert report
    assert BATCHES not in held(report)
    assert "batches are not measured" in str(report)

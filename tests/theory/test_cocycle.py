"""The verifier accepts token-dependent steps that obey the law of the cocycle, and names the law that others break."""

import json

import pytest
import torch
from torch import nn

import lrpe
from lrpe.encodings import Angles, Orthogonal, Unitary

NAMES = ["type1", "type2", "rope", "cosformer", "fourier*unitary", "fourier*orthogonal", "learned*orthogonal"]


def gate(x):
    return nn.functional.logsigmoid(x[:, 0] + 2)


def selective(x):
    """Steps from the last two tokens, as a causal convolution makes them."""
    return 1 + 0.5 * x[:, 0] + 0.2 * nn.functional.pad(x[:-1, 1], (1, 0))


def reflections(beta):
    """DeltaNet's products, I - β k kᵀ with a unit vector k of each token."""

    def transition(x):
        k = x / x.norm(dim=-1, keepdim=True)
        return torch.eye(x.shape[-1], dtype=x.dtype) - beta * k[:, :, None] * k[:, None]

    return transition


def failed(report):
    """The names of the laws that fail; a line without a name belongs to the name above it."""
    names, name = set(), ""
    for law in report.laws:
        name = law.name or name
        names |= set() if law.holds else {name}
    return names


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("heads", [None, 2])
def test_a_rotation_by_the_steps_of_its_tokens_obeys_every_law(name, heads):
    encoding = lrpe.encoding(name, head_dim=6, heads=heads, length=64, learned_angles=True)
    report = lrpe.verify(encoding, steps=selective, log_decay=gate, dim=3)
    assert report, str(report)
    assert len(report.laws) == 11


def test_each_angle_may_have_steps_of_its_own():
    encoding = lrpe.encoding("type2", head_dim=6)
    assert lrpe.verify(encoding, steps=lambda x: x[:, :3].tanh(), dim=4)
    assert lrpe.verify(encoding, steps=torch.linspace(0, 2, 15).reshape(5, 3))


def test_a_module_of_a_layer_is_measured_in_float64_and_left_as_it_was():
    steps = nn.Sequential(nn.Linear(4, 1), nn.Dropout(0.5), nn.Flatten(0)).train()
    assert lrpe.verify(lrpe.encoding("type2", head_dim=4), steps=steps, dim=4)
    assert steps.training
    assert steps[0].weight.dtype == torch.float32


def test_a_decay_alone_is_measured_beside_steps_of_1():
    report = lrpe.verify(lrpe.encoding("type1", head_dim=4), log_decay=torch.linspace(-3, 0, 40))
    assert report, str(report)
    assert "log_decay is a tensor, on which causality cannot be measured" in str(report)


def test_steps_that_look_ahead_are_rejected():
    encoding = lrpe.encoding("type2", head_dim=4)
    for steps in (lambda x: x[:, 0] - x[:, 0].mean(), lambda x: x[:, 0].roll(-1), lambda x: x[:, 0].flip(0).cumsum(0)):
        assert failed(lrpe.verify(encoding, steps=steps, dim=2)) == {"Causality"}


def test_a_decay_above_1_is_rejected_even_if_only_a_large_token_has_it():
    encoding = lrpe.encoding("type2", head_dim=4)
    assert failed(lrpe.verify(encoding, log_decay=lambda x: 0.01 * (x[:, 0] - 5), dim=2)) == {"Decay"}
    late = torch.zeros(100).index_fill(0, torch.tensor([99]), 0.1)
    assert failed(lrpe.verify(encoding, log_decay=late)) == {"Decay"}
    assert failed(lrpe.verify(encoding, log_decay=lambda x: 3 + 0 * x[:, 0], dim=2)) == {"Decay"}  # far above


def test_a_product_of_reflections_is_unitary_and_does_not_commute():
    report = lrpe.verify(transition=reflections(2.0), dim=4)
    assert failed(report) == {"Commuting", "Split"}
    assert "FAILS" in str(report)


def test_delta_rule_contractions_are_not_unitary_either():
    assert failed(lrpe.verify(transition=reflections(0.5), dim=4)) == {"Unitary", "Commuting", "Split"}


def strength(x):
    """β in (0, 1), of each token."""
    return x[:, 0, None, None].sigmoid()


OUTSIDE = {
    "DeltaNet": (lambda x: reflections(strength(x))(x), {"Unitary", "Commuting", "Split"}),
    "PaTH": (lambda x: reflections(2 * strength(x))(x), {"Unitary", "Commuting", "Split"}),
    "PaTH of reflections": (reflections(2.0), {"Commuting", "Split"}),
    "KDA": (lambda x: reflections(strength(x))(x) * x.sigmoid()[:, None], {"Unitary", "Commuting", "Split"}),
}


@pytest.mark.parametrize("model", OUTSIDE)
def test_models_of_products_that_do_not_commute_break_the_split(model):
    transition, laws = OUTSIDE[model]
    assert failed(lrpe.verify(transition=transition, dim=4)) == laws


def test_reflections_along_one_vector_commute_and_are_accepted():
    k = torch.tensor([0.6, 0.8], dtype=torch.float64)
    steps = torch.stack([torch.eye(2, dtype=torch.float64), torch.eye(2) - 2 * torch.outer(k, k)])
    report = lrpe.verify(transition=lambda x: steps[(x[:, 0] > 0).long()], log_decay=gate, dim=1)
    assert report, str(report)


def test_a_foreign_rotation_is_accepted_in_the_tolerance_of_its_dtype():
    def transition(x):
        return torch.linalg.matrix_exp(x[:, 0, None, None].float() * torch.tensor([[0.0, -1.0], [1.0, 0.0]]))

    report = lrpe.verify(transition=transition, dim=1)
    assert report, str(report)
    assert all(law.tolerance > 1e-3 for law in report.laws)


def test_a_transition_that_looks_ahead_is_rejected():
    assert failed(lrpe.verify(transition=lambda x: reflections(0.0)(x) * x[-1, 0].sign(), dim=2)) == {"Causality"}


class Squared(Unitary):
    """Λ^(p) = diag(e^{ip²α}), whose product is not at the sum of the phases."""

    def phase_table(self, phases, dtype=torch.float32):
        return super().phase_table(phases.square(), dtype)


class Growing(Orthogonal):
    """Rotations that also stretch, by 1.01^p."""

    def phase_table(self, phases, dtype=torch.float32):
        (turn,) = super().phase_table(phases, dtype)
        return (turn * 1.01 ** phases.unsqueeze(-1),)


def test_angles_that_are_no_sum_of_steps_break_the_cocycle():
    report = lrpe.verify(Squared(4), steps=selective, dim=3)
    assert failed(report) == {"Cocycle", "Split", "Equal steps", "Definition 3.1"}


def test_steps_that_stretch_are_not_unitary():
    report = lrpe.verify(Growing(4), steps=selective, dim=3)
    assert failed(report) == {"Unitary", "Split", "Equal steps", "Definition 3.1"}


def test_steps_that_are_not_numbers_are_rejected():
    steps = torch.ones(8).index_fill(0, torch.tensor([3]), torch.nan)
    assert "Cocycle" in failed(lrpe.verify(Orthogonal(4), steps=steps))


def test_the_report_is_json_and_says_what_was_tested():
    values = json.loads(json.dumps(lrpe.verify(Orthogonal(4), steps=selective, dim=2).to_dict()))
    assert values["holds"] is True
    assert "32 tokens drawn by seed 0" in values["tested"]
    assert any("every position from -2048 to 2048" in note for note in values["notes"])


@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        ({"subject": Orthogonal(4), "steps": selective}, "dim must be given if steps is a function"),
        ({"subject": Orthogonal(4), "steps": [1.0, 2.0]}, r"steps must be a tensor .* got \[1.0, 2.0\]"),
        ({"subject": Orthogonal(4), "steps": torch.tensor(1.0)}, "steps must be a tensor"),
        ({"subject": Orthogonal(4), "steps": torch.ones(1)}, "at least 2 tokens"),
        ({"subject": Orthogonal(4), "steps": torch.ones(8, dtype=torch.complex64)}, "steps must be real"),
        ({"subject": Orthogonal(4), "steps": torch.ones(8, 3)}, r"angles=2; got \(8, 3\)"),
        ({"subject": Orthogonal(4), "steps": torch.ones(8), "log_decay": torch.zeros(9)}, "one entry .* 8 and 9"),
        ({"subject": Orthogonal(4), "log_decay": torch.zeros(8, 2)}, r"log_decay must have shape \(n,\)"),
        ({"subject": Orthogonal(4), "steps": lambda x: x[0], "dim": 3}, r"here 32, in its first axis; got \(3,\)"),
        ({"subject": Orthogonal(4, alternating=2), "steps": torch.ones(8)}, "integers s only"),
        ({"subject": lrpe.Permutation(4, seed=0), "steps": torch.ones(8)}, "integers s only"),
        ({"subject": lambda s: 1.0, "steps": torch.ones(8)}, "steps must come with an Encoding"),
        ({"transition": reflections(1.0), "steps": torch.ones(8), "dim": 2}, "steps= beside transition="),
        ({"transition": lambda x: x, "dim": 2}, r"\(n, d, d\); got \(32, 2\)"),
        ({"relative": lambda s: 1.0, "steps": torch.ones(8)}, "steps must come with an Encoding"),
    ],
)
def test_what_has_no_token_dependent_steps_is_refused(arguments, law):
    with pytest.raises(lrpe.LrpeError, match=law):
        lrpe.verify(**arguments)


def test_a_learned_rotation_still_obeys_the_laws_after_training():
    encoding = lrpe.Encoding(lrpe.Householder(4, seed=0), Orthogonal(4, Angles([1.0, 0.1], learned=True)))
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.add_(torch.randn_like(parameter))
    assert lrpe.verify(encoding, steps=selective, log_decay=gate, dim=3)

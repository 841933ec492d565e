"""What defines an encoding does not decay, in any model."""

import pytest
import torch
from torch import nn

import lrpe


class Mine(nn.Module):
    """A model with its own modules and some of ours."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        learned = lrpe.configure("type2", 4, learned_basis=True, reflections=2, heads=4)
        self.attention = lrpe.LinearAttention(16, heads=4, encoding=learned)
        self.other = lrpe.SoftmaxAttention(16, heads=4, encoding="learned*unitary")
        self.spe = lrpe.encoding("spe", 4, heads=4)
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, 10)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)


def grouped(model, **choices):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [{names[id(p)] for p in group["params"]} for group in lrpe.parameter_groups(model, **choices)]


def test_matrices_decay_and_encodings_norms_and_biases_do_not():
    model = Mine()
    decayed, kept = grouped(model)
    maps = {f"{each}.{side}_proj.weight" for each in ("attention", "other") for side in "qkvo"}
    assert decayed == maps | {"embed.weight", "out.weight"}
    assert {"attention.encoding.basis.v", "attention.encoding.matrix.angles.log_alpha", "norm.weight"} <= kept
    assert {name for name in kept if name.startswith("spe.")} == {f"spe.{n}" for n, _ in model.spe.named_parameters()}
    assert decayed | kept == {name for name, p in model.named_parameters() if p.requires_grad}


def test_other_kinds_of_modules_can_be_spared():
    decayed, kept = grouped(Mine(), without_decay=(nn.Embedding,))
    assert "embed.weight" in kept
    assert "out.weight" in decayed


def test_rates_and_decays_are_those_that_are_given():
    first, second = lrpe.parameter_groups(Mine(), lr=0.5, weight_decay=0.25)
    assert (first["weight_decay"], second["weight_decay"]) == (0.25, 0.0)
    assert first["lr"] == second["lr"] == 0.5
    assert all("lr" not in group for group in lrpe.parameter_groups(Mine()))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: lrpe.parameter_groups([nn.Linear(1, 1).weight]), "model must be an nn.Module; got list"),
        (lambda: lrpe.parameter_groups(nn.Identity()), "must have a parameter that requires a gradient"),
        (lambda: lrpe.parameter_groups(Mine(), weight_decay=-1), "weight_decay must be a number of at least 0"),
        (lambda: lrpe.parameter_groups(Mine(), weight_decay="a"), "weight_decay must be a number of at least 0"),
        (
            lambda: lrpe.parameter_groups(Mine(), weight_decay=float("nan")),
            "weight_decay must be a number of at least 0",
        ),
    ],
)
def test_a_mistake_is_named(mistake, message):
    with pytest.raises(lrpe.LrpeError, match=message):
        mistake()


def test_a_step_without_gradient_moves_what_decays_alone():
    model = Mine()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    torch.optim.AdamW(lrpe.parameter_groups(model, lr=0.1, weight_decay=1.0)).step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == grouped(model)[0]

import math
from itertools import pairwise

import pytest
import torch

from lrpe import LrpeError
from lrpe.lab.training.settings import Optimization
from lrpe.lab.training.steps import scale_and_clip_
from lrpe.models import LrpeForCausalLM
from lrpe.weight_decay import parameter_groups
from tests.models.tiny import tiny


def rates(schedule: str, **changes) -> list[float]:
    plan = Optimization(updates=100, warmup=10, rate=1.0, schedule=schedule, **changes)
    return [plan.rate_at(update) for update in range(100)]


@pytest.mark.parametrize("schedule", ["inverse-sqrt", "polynomial", "cosine", "constant"])
def test_the_rate_rises_in_a_line_to_its_height_and_does_not_rise_again(schedule):
    found = rates(schedule, first_rate=1e-7)
    assert found[0] == pytest.approx(0.1, rel=1e-5)
    assert found[9] == pytest.approx(1.0)
    assert all(b <= a + 1e-12 for a, b in pairwise(found[9:]))
    assert min(found) >= 0


def test_schedules_are_what_they_are_called():
    assert rates("inverse-sqrt")[49] == pytest.approx(math.sqrt(10 / 50))  # √(warm-up / update)
    assert rates("polynomial")[55] == pytest.approx(1 - 45 / 90)
    assert rates("cosine")[55] == pytest.approx(0.5)
    assert rates("constant")[99] == 1


def test_the_optimiser_lets_decay_what_parameter_groups_says():
    model = tiny(LrpeForCausalLM, mlp_bias=True)
    built = Optimization(weight_decay=0.3, rate=0.5).build(model).param_groups
    expected = parameter_groups(model, weight_decay=0.3)
    assert [group["weight_decay"] for group in built] == [0.3, 0.0]
    assert [[id(p) for p in group["params"]] for group in built] == [[id(p) for p in g["params"]] for g in expected]


def test_a_gradient_is_multiplied_and_shortened_or_let_be():
    gradient = torch.full((4,), 2.0)
    assert scale_and_clip_([gradient], 0.5, 0.0) == pytest.approx(2)
    assert gradient.norm() == pytest.approx(2)
    assert scale_and_clip_([gradient], 3.0, 1.0) == pytest.approx(6)
    assert gradient.norm() == pytest.approx(1, rel=1e-3)


def test_a_plan_that_cannot_be_is_named():
    with pytest.raises(LrpeError, match="The warm-up must end before the run does; got 20 of 10"):
        Optimization(updates=10, warmup=20)
    with pytest.raises(LrpeError, match="got 3 of 2"):
        Optimization(epochs=2, warmup_epochs=3)
    with pytest.raises(LrpeError, match="got 100 of 20"):
        Optimization(epochs=2).count_in_updates(updates_per_epoch=10)


def test_epochs_are_settled_into_updates():
    plan = Optimization(epochs=2.5, warmup_epochs=0.5, rate=0.3).count_in_updates(updates_per_epoch=10)
    assert (plan.updates, plan.warmup, plan.epochs, plan.warmup_epochs, plan.rate) == (25, 5, 0, 0, 0.3)
    assert plan.count_in_updates(updates_per_epoch=7) == plan
    assert Optimization(updates=50, warmup_epochs=2).count_in_updates(updates_per_epoch=10).warmup == 20

"""The order of the data does not depend on who takes it, and how."""

from itertools import islice

import pytest

from lrpe import LrpeError
from lrpe.lab.training import steps
from lrpe.lab.training.steps import Steps, measure
from tests.lab.training.small_run import small_task
from tests.models.tiny import draw_ids


def updates(monkeypatch, world: int, micro_batch: int, after: int = 0, batch: int = 8) -> list[list]:
    """The samples of each of twelve updates."""
    found: list[list] = [[] for _ in range(12)]
    for rank in range(world):
        monkeypatch.setattr(steps, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(steps, "world_size", lambda: world)
        shared = Steps(small_task(), batch, micro_batch, seed=3)
        for i, one in enumerate(islice(shared.after(after), 12 * shared.accumulated)):
            found[i // shared.accumulated] += one["pixel_values"].flatten(1).tolist()
    return [sorted(samples) for samples in found]


@pytest.mark.parametrize(("world", "micro_batch"), [(1, 2), (2, 0), (2, 1), (4, 0), (4, 64), (8, 1)])
def test_an_update_has_the_same_samples_on_any_number_of_processes_and_steps(monkeypatch, world, micro_batch):
    assert updates(monkeypatch, world, micro_batch) == updates(monkeypatch, 1, 0)


@pytest.mark.parametrize("after", [1, 5, 7])
def test_a_run_that_goes_on_meets_the_samples_that_it_had_not(monkeypatch, after):
    assert updates(monkeypatch, 2, 2, after)[: 12 - after] == updates(monkeypatch, 1, 0)[after:]


def test_what_cannot_be_shared_is_named(monkeypatch):
    with pytest.raises(LrpeError, match="got batch=8, processes=3, micro_batch=0"):
        updates(monkeypatch, 3, 0)
    with pytest.raises(LrpeError, match="batch must not exceed the samples of an epoch; got batch=48"):
        updates(monkeypatch, 1, 8, batch=48)


def test_a_batch_has_tokens_or_samples():
    assert measure({"labels": draw_ids(3, 1), "input_ids": draw_ids(3, 7)}) == (21, "tokens")
    assert measure({"pixel_values": draw_ids(3, 7)}) == (3, "samples")

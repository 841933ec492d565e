import numpy as np
import pytest
import torch

from lrpe import LrpeError
from lrpe.lab.data.batches import Batches
from lrpe.lab.data.dataset import Draw


class Noisy:
    """Samples that are their index, and noise that differs from epoch to epoch."""

    def __len__(self):
        return 23

    def sample(self, draw: Draw):
        return {"index": draw.index, "noise": float(draw.generator().standard_normal())}


def stack(samples):
    return {name: torch.tensor([sample[name] for sample in samples]) for name in samples[0]}


def batches(**changes):
    return Batches(Noisy(), collate=stack, **{"size": 4} | changes)


def listed(found):
    return [(batch["index"].tolist(), batch["noise"].tolist()) for batch in found]


def test_any_number_of_workers_gives_the_same_batches():
    alone = listed(batches(seed=3).epoch(2))
    assert listed(batches(seed=3, workers=2).epoch(2)) == alone
    assert listed(batches(seed=4).epoch(2)) != alone
    assert listed(batches(seed=3).epoch(1)) != alone


@pytest.mark.parametrize("workers", [0, 1])
def test_torchs_own_random_numbers_are_not_touched(workers):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(batches(workers=workers).epoch(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_an_epoch_goes_on_from_the_middle():
    whole = listed(batches().epoch(5))
    assert listed(batches().epoch(5, start=3)) == whole[3:]
    assert len(whole) == len(batches()) == 5


@pytest.mark.parametrize("world", [1, 2, 3])
def test_processes_share_the_samples_and_none_is_seen_twice(world):
    for training in (True, False):
        found = [batches(training=training, rank=rank, world=world) for rank in range(world)]
        seen = [i for each in found for batch in each.indices(0) for i in batch]
        assert len(set(seen)) == len(seen)
        assert len(seen) == (23 - 23 % (4 * world) if training else 23)
        assert len({len(each) for each in found}) == 1


def test_two_processes_see_the_batches_that_one_would():
    one = list(batches(size=8).indices(1))
    two = zip(*(batches(size=4, rank=rank, world=2).indices(1) for rank in range(2)), strict=True)
    assert [sorted(batch) for batch in one] == [sorted(a + b) for a, b in two]


def test_a_process_without_a_share_of_the_last_batch_gets_none():
    last = list(batches(size=2, world=12, rank=11, training=False).epoch(0))[-1]
    assert last is None or len(last["index"]) >= 1
    assert list(Batches(Noisy(), 1, stack, training=False, rank=23, world=24).epoch(0)) == [None]


def test_copies_of_a_sample_stand_together_and_are_drawn_anew():
    found = list(batches(copies=2).epoch(0))
    assert len(found) == len(batches())
    for batch in found:
        pairs = batch["index"].view(-1, 2)
        assert (pairs[:, 0] == pairs[:, 1]).all()
        assert (batch["noise"].view(-1, 2).diff() != 0).all()
    with pytest.raises(LrpeError, match="exactly 1 in evaluation; got copies="):
        batches(copies=2, training=False)


def test_evaluation_keeps_the_order():
    seen = np.concatenate(list(batches(training=False).indices(0)))
    assert seen.tolist() == list(range(23))


def test_bad_sizes_are_named():
    with pytest.raises(LrpeError, match="at least one full batch, 2 × 12 samples; the split has 23"):
        batches(size=12, world=2)
    with pytest.raises(LrpeError, match="rank=2, world=2"):
        batches(rank=2, world=2)

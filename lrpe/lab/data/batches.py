"""Batches of a split: the same on every machine and for any number of workers, each sample once per epoch."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from lrpe.errors import require
from lrpe.lab.data.dataset import Draw, Sample, Split
from lrpe.lab.data.jobs import end_with_parent

_Collate = Callable[[list[Sample]], Any]


class Batches:
    """Batches of ``size`` samples for each of ``world`` processes; this is process ``rank``.

    In training, the order of an epoch is a permutation drawn from (seed, epoch), and a last batch that is not full for
    all processes is dropped. In evaluation, the order is that of the split, and every sample goes to exactly one
    process.

    Args:
        split: the samples.
        size: samples per batch and process.
        collate: turns a list of samples into a batch.
        training: whether to shuffle and to drop an incomplete last batch.
        seed: for the order and for the random choices within samples.
        rank: the number of this process.
        world: the number of processes.
        workers: processes that prepare samples; 0 prepares them in this process.
        copies: how often each sample is repeated in a row, each time drawn anew (repeated augmentation, Hoffer et al.,
            2020). The epoch keeps its length, so it has fewer distinct samples.
        limit: use only the first ``limit`` samples of the split; 0 uses all.
    """

    def __init__(
        self,
        split: Split,
        size: int,
        collate: _Collate,
        training: bool = True,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
        copies: int = 1,
        limit: int = 0,
    ):
        require(
            size >= 1 and workers >= 0,
            f"size must be at least 1 and workers at least 0; got size={size}, workers={workers}.",
        )
        require(0 <= rank < world, f"rank must be in 0 ... world - 1; got rank={rank}, world={world}.")
        self.samples = min(len(split), limit) if limit else len(split)
        require(
            not training or self.samples >= size * world,
            f"An epoch needs at least one full batch, {world} × {size} samples; the split has {self.samples}.",
        )
        self.split, self.size, self.collate, self.training = split, size, collate, training
        self.seed, self.rank, self.world, self.workers = seed, rank, world, workers
        require(
            copies >= 1 and (training or copies == 1),
            f"copies must be at least 1, and exactly 1 in evaluation; got copies={copies}.",
        )
        self.copies = copies

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        whole, rest = divmod(self.samples, self.size * self.world)
        return whole if self.training or rest == 0 else whole + 1

    def indices(self, epoch: int) -> Iterator[list[int]]:
        """Yield the sample indices of each batch of this process."""
        for batch in self.draws(epoch):
            yield [draw.index for draw in batch]

    def draws(self, epoch: int, start: int = 0) -> Iterator[list[Draw]]:
        n, together = self.samples, self.size * self.world
        order = np.random.default_rng((self.seed, epoch)).permutation(n) if self.training else np.arange(n)
        for batch in range(start, len(self)):
            places = range(batch * together + self.rank, min((batch + 1) * together, n), self.world)
            yield [Draw(int(order[i // self.copies]), epoch, self.seed, i % self.copies) for i in places]

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """Yield the batches of an epoch, beginning with batch ``start``, where a resumed run continues.

        In evaluation the last batch may have no samples left for this process; it is then None.
        """
        if self.workers == 0:
            yield from (self.gather([self.split.sample(draw) for draw in batch]) for batch in self.draws(number, start))
            return
        yield from DataLoader(
            _Keyed(self.split),  # type: ignore[arg-type]
            batch_sampler=self.draws(number, start),  # type: ignore[arg-type]
            collate_fn=self.gather,
            num_workers=self.workers,
            worker_init_fn=_begin_worker,
            generator=torch.Generator(),  # the default draws from torch's global generator and would change dropout
        )

    def gather(self, samples: list[Sample]) -> Any:
        return self.collate(samples) if samples else None


def _begin_worker(_: int) -> None:
    """End this worker together with the training process; torch itself checks only every five seconds."""
    end_with_parent()


class _Keyed:
    """Adapt a split to torch's DataLoader: the key is a Draw, not an index."""

    def __init__(self, split: Split):
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, draw: Draw) -> Sample:
        return self.split.sample(draw)

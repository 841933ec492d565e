"""Batches of a split: the same on every machine and for any number of workers, each sample once an epoch."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from lrpe.errors import require
from lrpe.lab.data.dataset import Draw, Sample, Split
from lrpe.lab.orphans import end_with_parent

_Collate = Callable[[list[Sample]], Any]


class Batches:
    """Batches of ``size`` samples for each of ``world`` processes, of which this is number ``rank``.

    In training the order of an epoch is a permutation drawn from (seed, epoch), and a last batch that is not full for
    all processes is left out; in evaluation the order is that of the split, and every sample comes to one process once.
    With ``copies`` each sample of an epoch comes so many times in a row, drawn anew (repeated augmentation, Hoffer et
    al., 2020), and the epoch has as many samples as before, so fewer different ones. With a
    ``limit`` only so many samples of the split are there, its first ones.
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
        require(size >= 1 and workers >= 0, f"A batch has one sample or more; got size={size}, workers={workers}.")
        require(0 <= rank < world, f"A process is one of 0 ... world - 1; got rank={rank}, world={world}.")
        self.samples = min(len(split), limit) if limit else len(split)
        require(
            not training or self.samples >= size * world,
            f"An epoch has one full batch or more; got {self.samples} samples for {world} × {size}.",
        )
        self.split, self.size, self.collate, self.training = split, size, collate, training
        self.seed, self.rank, self.world, self.workers = seed, rank, world, workers
        require(copies >= 1 and (training or copies == 1), f"Copies are for training, 1 or more; got copies={copies}.")
        self.copies = copies

    def __len__(self) -> int:
        """Batches an epoch."""
        whole, rest = divmod(self.samples, self.size * self.world)
        return whole if self.training or rest == 0 else whole + 1

    def indices(self, epoch: int) -> Iterator[list[int]]:
        """The samples of each batch of this process."""
        for batch in self.draws(epoch):
            yield [draw.index for draw in batch]

    def draws(self, epoch: int, start: int = 0) -> Iterator[list[Draw]]:
        n, together = self.samples, self.size * self.world
        order = np.random.default_rng((self.seed, epoch)).permutation(n) if self.training else np.arange(n)
        for batch in range(start, len(self)):
            places = range(batch * together + self.rank, min((batch + 1) * together, n), self.world)
            yield [Draw(int(order[i // self.copies]), epoch, self.seed, i % self.copies) for i in places]

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch from number ``start`` on: what a resumed run asks for.

        A process whose share of the last batch of an evaluation is empty gets None for it.
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
            generator=torch.Generator(),  # else every epoch would draw from torch's own, which dropout draws from
        )

    def gather(self, samples: list[Sample]) -> Any:
        return self.collate(samples) if samples else None


def _begin_worker(_: int) -> None:
    """End with the training process at once; torch itself looks for it every five seconds, and between samples."""
    end_with_parent()


class _Keyed:
    """A split as torch's loader wants it: what stands in brackets is a draw."""

    def __init__(self, split: Split):
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, draw: Draw) -> Sample:
        return self.split.sample(draw)

"""Problems whose log-decay comes from a decay per head, gaps in positions, borders between sequences and a start."""

from typing import NamedTuple

import torch
from torch import Tensor

from lrpe.attention.choices import Summation
from lrpe.attention.decay import decay_between
from lrpe.attention.sums.problem import Problem, Sums
from lrpe.attention.tokens import Tokens


class Frame(NamedTuple):
    """w_ts = r^|p_t - p_s| within a sequence, 0 across sequences."""

    decay: Tensor | None = None  # (key heads,)
    positions: Tensor | None = None  # (batch or 1, n)
    sequences: Tensor | None = None  # (batch or 1, n)

    def log_decay(self, gap: Tensor | None = None) -> Tensor | None:
        log_r = None if self.decay is None else self.decay.double().log()[None, :, None]
        if gap is not None and self.positions is None and log_r is not None:
            raise ValueError("a frame with a gap needs positions")
        return decay_between(log_r, Tokens(self.positions, None, self.sequences, gap=gap))


class Start(NamedTuple):
    """A state before the first token, and the number of positions from it to the first token."""

    S: Tensor
    z: Tensor
    gap: Tensor | None = None


def describe(q: Tensor, k: Tensor, v: Tensor, frame: Frame, total: bool = False, start: Start | None = None) -> Problem:
    """The problem of a frame; if ``total``, Δ is the sum of the scores."""
    if start is not None and start.gap is not None and frame.positions is None:
        frame = frame._replace(positions=torch.arange(k.shape[2])[None])
    problem = Problem(q, k, v, *((q, k) if total else (None, None)), log_decay=frame.log_decay(start and start.gap))
    return problem if start is None else problem._replace(S=start.S, z=start.z if total else None)


def solve(how: Summation, *description, **options) -> Sums:
    return how(describe(*description, **options))

"""Context parallelism: one sequence over several processes, each of which holds a contiguous part of every row.

Inside ``context`` linear attention gives every process what it would get for its tokens if it held the whole row. Every
process must make the same calls in the same order, forwards and backwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from lrpe.autograd import Differentiable
from lrpe.errors import LrpeError, require

__all__ = ["context", "own_part", "join_parts"]

# Not a context variable: autograd may run the backward pass, and with checkpointing a layer, in threads of its own.
_active: Any = None


@contextmanager
def context(group: Any = None) -> Iterator[None]:
    """Treat the tokens of every process inside the block as its part of one longer row, in the order of the ranks.

    ``LinearAttention``, ``linear_attention`` and the language models of ``lrpe.models`` then give each process the
    output, the state and the gradients that one process with the whole row would have. A padding mask, positions and
    sequences describe the own part; cu_seqlens describe the whole row and are the same on every process. The parts may
    have different lengths. A gradient of a parameter is that of the own part's tokens: add them up over the processes,
    as DistributedDataParallel does.

    Backward may run outside the block, unless checkpointing runs a layer of your own again there.

    Args:
        group: a process group of ``torch.distributed``; the default group if None.

    Raises:
        LrpeError: there is no process group, or this process does not belong to it.
    """
    global _active
    require(
        dist.is_available() and dist.is_initialized(),
        "lrpe.parallel.context needs a process group. Start the program by torchrun and call "
        "torch.distributed.init_process_group first.",
    )
    before, _active = _active, _read_group(group)
    try:
        yield
    finally:
        _active = before


def own_part(x: Tensor, dim: int = 1) -> Tensor:
    """Return this process's part of a tensor that every process holds whole: as ``torch.tensor_split`` cuts it.

    Outside ``context`` it is the whole tensor.
    """
    group = active_group()
    return x if group is None else x.tensor_split(dist.get_world_size(group), dim)[dist.get_rank(group)]


def join_parts(x: Tensor, dim: int = 1) -> Tensor:
    """Return the whole tensor on every process from its parts along ``dim``, which may differ in size; differentiable.

    Outside ``context`` it is x itself.
    """
    group = active_group()
    return x if group is None else read_part(group, x.shape[dim], x.device).join(x, dim)


def active_group() -> Any:
    """Return the process group of the innermost ``context``, or None if there is none or it has one process."""
    return None if _active is None or dist.get_world_size(_active) == 1 else _active


def refuse(what: str, way_out: str) -> None:
    """Raise inside ``context``: ``what`` is the subject of a sentence, ``way_out`` another sentence."""
    if active_group() is not None:
        raise LrpeError(f"{what} cannot be spread over processes by lrpe.parallel.context. {way_out}")


def _read_group(group: Any) -> Any:
    group = dist.group.WORLD if group is None else group
    known = isinstance(group, dist.ProcessGroup)
    require(known, lambda: f"group must be a process group that this process belongs to; got {type(group).__name__}.")
    return group


class Part(NamedTuple):
    """The part of a row that this process holds, and the processes that hold the others."""

    group: Any
    rank: int
    lengths: tuple[int, ...]  # the number of tokens of each process

    @property
    def start(self) -> int:
        """Return the index of the own part's first token in the row."""
        return sum(self.lengths[: self.rank])

    @property
    def stop(self) -> int:
        return self.start + self.lengths[self.rank]

    @property
    def borders(self) -> list[int]:
        """Return where each part begins, and the length of the row."""
        return [sum(self.lengths[:rank]) for rank in range(len(self.lengths) + 1)]

    def cut(self, whole: Tensor, dim: int = 1) -> Tensor:
        """Return the own part of a tensor of the whole row."""
        return whole.narrow(dim, self.start, self.lengths[self.rank])

    def gather(self, x: Tensor) -> Tensor:
        """Return the tensors of all processes, which have one shape, as (processes, *shape); differentiable."""
        return self.start_gather(x).wait()

    def start_gather(self, x: Tensor) -> "Gathering":
        """Start to gather, so that communication overlaps with what is computed before ``wait``."""
        return Gathering(self.group, x)

    def join(self, x: Tensor, dim: int = 1) -> Tensor:
        """Return the parts of a tensor as one; the own one is x."""
        longest = max(self.lengths)
        rows = x.movedim(dim, 0)
        same = torch.cat([rows, rows.new_zeros(longest - rows.shape[0], *rows.shape[1:])])
        parts = self.gather(same)
        return torch.cat([part[:length] for part, length in zip(parts, self.lengths, strict=True)]).movedim(0, dim)


def read_part(group: Any, length: int, device: torch.device) -> Part:
    """Return this process's part of a row, of which it holds ``length`` tokens."""
    lengths = Part(group, 0, ()).gather(torch.tensor([length], device=device))
    return Part(group, dist.get_rank(group), tuple(lengths.flatten().tolist()))


class Gathering:
    """An all-gather that has been started.

    Its gradient, the sum over processes of the gradients of one's own tensor, is started by the backward pass of
    ``wait`` and waited for by that of the start. Autograd runs what was computed between the two in reverse order too,
    so that communication overlaps in the backward pass as it does in the forward pass.
    """

    def __init__(self, group: Any, own: Tensor):
        self.group = group
        self.work: Any = None
        self.gradient: Tensor | None = None  # of the own tensor, between the two backward passes
        self.gathered: Tensor | None = _Start.of(own, self)

    def wait(self) -> Tensor:
        """Return the tensors of all processes, (processes, *shape). Call it once."""
        gathered, self.gathered = self.gathered, None  # a reference cycle: autograd's node keeps this object
        return _Wait.of(gathered, self)

    def gather(self, own: Tensor) -> Tensor:
        gathered = own.new_empty(dist.get_world_size(self.group), *own.shape)
        # Flat, because gloo takes no stack of tensors.
        self.work = _all_gather(gathered.view(-1), own.flatten(), group=self.group, async_op=True)
        return gathered

    def finish(self) -> None:
        """Wait for what has been started, and forget it: it holds the gathered tensor, whose node holds this object.

        Without a backward pass, as when checkpointing computes a layer again, nothing else breaks that reference cycle.
        """
        self.work.wait()
        self.work = None

    def reduce(self, g: Tensor) -> None:
        """Start to add up the gradients (processes, *shape) over processes, and keep the own one."""
        try:
            self.gradient = torch.empty_like(g[0])
            self.work = _reduce_scatter(self.gradient.view(-1), g.view(-1), group=self.group, async_op=True)
        except RuntimeError:  # gloo has no reduce-scatter in older versions of torch
            summed = g.clone()
            self.work = dist.all_reduce(summed, group=self.group, async_op=True)
            self.gradient = summed[dist.get_rank(self.group)]


# torch 2.13 renamed these two.
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class _Start(Differentiable):
    """Start the all-gather; wait for its gradient."""

    @staticmethod
    def forward(own: Tensor, gathering: Gathering) -> Tensor:
        return gathering.gather(own)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.gathering = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):  # type: ignore[override]
        ctx.gathering.finish()
        gradient, ctx.gathering.gradient = ctx.gathering.gradient, None
        return gradient, None


class _Wait(Differentiable):
    """Wait for the all-gather; start its gradient."""

    @staticmethod
    def forward(gathered: Tensor, gathering: Gathering) -> Tensor:
        gathering.finish()
        return gathered.view_as(gathered)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.gathering = inputs[1]

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor):  # type: ignore[override]
        g = grads[0].contiguous()
        ctx.gathering.reduce(g)
        return g, None  # of this shape for autograd, and alive until the sum over processes is there

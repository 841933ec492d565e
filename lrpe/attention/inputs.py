"""Check masks, positions and packed sequences, bring each into one shape, and join what processes say of one row."""

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from lrpe.errors import LrpeError, check_tensor, is_integral, require
from lrpe.parallel import Part
from lrpe.positions import batched, packed


class Given(NamedTuple):
    """The arguments of an attention layer that describe its tokens, before they are checked."""

    positions: Tensor | None = None
    mask: Tensor | None = None
    sequences: Tensor | None = None
    cu_seqlens: Tensor | None = None

    @property
    def packed(self) -> bool:
        return self.sequences is not None or self.cu_seqlens is not None


def read_mask(mask: Any, x: Tensor) -> Tensor:
    """Return a padding mask (batch, n) of booleans or integers as booleans."""
    batch, n = x.shape[0], x.shape[-2]
    check_tensor("mask", mask, x)
    if not is_integral(mask) or tuple(mask.shape) != (batch, n):
        raise LrpeError(
            f"mask must be a padding mask of shape (batch, n) = ({batch}, {n}), True (or 1) for real tokens; got "
            f"{mask.dtype} of shape {tuple(mask.shape)}. An n × n mask would need scores, which are never formed."
        )
    return mask != 0


def read_step_mask(mask: Any) -> Tensor | None:
    """Return a step's mask (batch,) as the mask of one token per row, (batch, 1)."""
    if mask is None:
        return None
    check_tensor("mask", mask)
    require(mask.ndim == 1, lambda: f"A step's mask must have one entry per row, (batch,); got {tuple(mask.shape)}.")
    return mask[:, None]


def read_positions(positions: Any, x: Tensor, axes: int) -> Tensor:
    """Return positions (n,) or (batch, n), plus an axis on a grid, as (1 or batch, n) or (1 or batch, n, axes)."""
    batch, n = x.shape[0], x.shape[-2]
    positions = batched(positions, axes)
    check_tensor("positions", positions, x)
    require(
        positions.shape[0] in (1, batch) and positions.shape[1] == n,
        lambda: f"positions must have shape ({n},) or ({batch}, {n}); got {tuple(positions.shape)}.",
    )
    return positions


def read_sequences(sequences: Any, x: Tensor) -> Tensor:
    """Renumber the sequences 0, 1, ... from the left; a number that recurs later begins another sequence."""
    batch, n = x.shape[0], x.shape[-2]
    check_tensor("sequences", sequences, x)
    sequences = sequences[None] if sequences.ndim == 1 else sequences
    require(
        is_integral(sequences) and sequences.ndim == 2 and sequences.shape[0] in (1, batch) and sequences.shape[1] == n,
        lambda: (
            f"sequences must be integers of shape ({n},) or ({batch}, {n}); got {sequences.dtype} of shape "
            f"{tuple(sequences.shape)}."
        ),
    )
    return begins(sequences).long().cumsum(-1) - 1


def number_sequences(cu_seqlens: Any, x: Tensor) -> Tensor:
    """Return the index of each token's sequence, (1, n), from the boundaries (sequences + 1,)."""
    batch, n = x.shape[0], x.shape[-2]
    require(batch == 1, lambda: f"cu_seqlens needs a batch of one row; got {batch} rows. Pass sequences instead.")
    check_tensor("cu_seqlens", cu_seqlens, x)
    require(
        cu_seqlens.device.type != "meta", "cu_seqlens must hold numbers, which a tensor on the meta device does not."
    )
    packed(cu_seqlens)  # called for its checks
    require(
        int(cu_seqlens[-1]) == n, lambda: f"cu_seqlens must end with the number of tokens, {n}; got {cu_seqlens[-1]}."
    )
    lengths = cu_seqlens.long().diff()
    return torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)[None]


def begins(sequences: Tensor) -> Tensor:
    """Return whether each token is the first of its sequence; (batch, n) -> (batch, n)."""
    first = torch.ones_like(sequences[:, :1], dtype=torch.bool)
    return torch.cat([first, sequences[:, 1:] != sequences[:, :-1]], 1)


def find_falls(positions: Tensor, real: Tensor, sequences: Tensor | None) -> Tensor:
    """Return whether a real token's position is less than that of an earlier one in its sequence; (batch, n)."""
    span = positions.amax() - positions.amin() + 1
    height = positions if sequences is None else positions + span * sequences  # above all earlier sequences
    lowest = torch.iinfo(torch.long).min
    return (height.masked_fill(~real, lowest).cummax(-1).values > height) & real


_DESCRIPTIONS = ("mask", "positions", "sequences")
_REFUSED = -1  # in place of the number of tokens


def join_row(group: Any, x: Tensor, given: Given) -> tuple[Part, Tensor, Given]:
    """Return the own part, a tensor with the batch and the tokens of the whole row, and what is said of these.

    x (batch, ..., n, d) and ``given`` are of the own part, but for cu_seqlens, which are of the whole row. Five numbers
    per process are gathered, and what is given of tokens: nothing else grows with their number.
    """
    require(
        not torch.compiler.is_compiling(),
        "torch.compile cannot trace lrpe.parallel.context. Call the model without compiling it.",
    )
    own, refusal = _check_own(x, given)
    rows = [0 if (tensor := own.get(name)) is None else tensor.shape[0] for name in _DESCRIPTIONS]
    header = torch.tensor([_REFUSED if refusal else x.shape[-2], x.shape[0], *rows], device=x.device)
    headers = Part(group, 0, ()).gather(header).tolist()
    if refusal is not None:
        raise refusal
    _check_headers(headers)
    part = Part(group, dist.get_rank(group), tuple(header[0] for header in headers))
    whole = x.new_empty(()).expand(x.shape[0], part.borders[-1], 1)  # takes no memory: only its shape is read
    joined = {
        name: _join(part, own.get(name), [header[2 + i] for header in headers], x)
        for i, name in enumerate(_DESCRIPTIONS)
    }
    return part, whole, given._replace(**joined)


def _check_own(x: Tensor, given: Given) -> tuple[dict[str, Tensor], LrpeError | None]:
    """Return the descriptions of the own tokens by name, each (batch or 1, n), or why they are refused."""
    own: dict[str, Tensor] = {}
    try:
        if given.mask is not None:
            own["mask"] = read_mask(given.mask, x)
        if given.positions is not None:
            own["positions"] = read_positions(given.positions, x, axes=1)
        if given.sequences is not None:
            read_sequences(given.sequences, x)  # for its checks: numbers are compared across the border of parts
            own["sequences"] = torch.atleast_2d(given.sequences).long()
    except LrpeError as error:
        return own, error
    return own, None


def _check_headers(headers: list[list[int]]) -> None:
    """Check that all processes describe one batch in one way; every process finds the same."""
    refused = [rank for rank, header in enumerate(headers) if header[0] == _REFUSED]
    require(not refused, lambda: f"Process {refused[0]} refused what is given of its tokens; see its error.")
    batches = [header[1] for header in headers]
    require(len(set(batches)) == 1, lambda: f"All processes must hold the same number of rows; got {batches}.")
    for i, name in enumerate(_DESCRIPTIONS[1:], 3):
        given = [header[i] > 0 for header in headers]
        require(
            all(given) or not any(given),
            lambda name=name, given=given: (
                f"{name} must be given on all processes or on none; got {name} on "
                f"{[rank for rank, here in enumerate(given) if here]} only."
            ),
        )


def _join(part: Part, own: Tensor | None, rows: list[int], x: Tensor) -> Tensor | None:
    """Return a description of the whole row, (batch or 1, tokens), or None if no process has one."""
    if not any(rows):
        return None
    if own is None:  # a mask: the own tokens are all real
        own = torch.ones(x.shape[0], x.shape[-2], dtype=torch.bool, device=x.device)
    return part.join(own.expand(x.shape[0], -1) if max(rows) > 1 else own)

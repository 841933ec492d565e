"""One row of tokens that several processes hold in parts: what each says of its part, joined."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lrpe.attention.inputs import Given, read_mask, read_positions, read_sequences
from lrpe.errors import LrpeError, require
from lrpe.parallel import Part

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

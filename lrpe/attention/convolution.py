"""The short convolution on queries, keys and values, as in Mamba, GLA and DeltaNet layers."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrpe.attention.engines.choice import allows
from lrpe.attention.engines.native_convolution import can_convolve, convolve_native
from lrpe.attention.tokens import Tokens
from lrpe.errors import check_count, check_real, require, unknown_name
from lrpe.precision import compute_dtype, without_autocast

CONVOLUTION_ACTIVATIONS: dict[str | None, Callable[[Tensor], Tensor]] = {None: lambda x: x, "silu": F.silu}

Vectors = tuple[Tensor, Tensor, Tensor]  # queries, keys, values


class ShortConvolution(nn.Module):
    """y_t = act(Σ_i w_i ⊙ x_{t - before + i}) over the ``kernel`` nearest tokens, on every channel of q, k and v.

    A causal one sees the token and the kernel - 1 before it. One that is not causal is centred as torch's
    ``padding="same"``: it sees (kernel - 1) // 2 tokens before and kernel // 2 after. Tokens are the real ones of one
    sequence: padding takes no place in the window, and what lies beyond the sequence is 0. Positions play no part.

    w starts as 1 at the token itself and 0 elsewhere, so that without an activation a new layer computes what it would
    compute without a convolution.

    Args:
        channels: the number of channels of q, of k and of v.
        kernel: the number of tokens in the window, at least 2.
        activation: "silu" or None.
        causal: whether no later token is seen.
    """

    def __init__(self, channels: tuple[int, int, int], kernel: int, activation: str | None = None, causal: bool = True):
        super().__init__()
        check_count("convolution", kernel, least=2)
        if not isinstance(activation, str | None) or activation not in CONVOLUTION_ACTIVATIONS:
            raise unknown_name("convolution_activation", activation, map(str, CONVOLUTION_ACTIVATIONS))
        self.channels, self.kernel, self.activation, self.causal = channels, kernel, activation, causal
        self.before = kernel - 1 if causal else (kernel - 1) // 2  # tokens of the window before the token itself
        self.later = kernel - 1 - self.before
        self.weight = nn.Parameter(self.identity())

    def identity(self) -> Tensor:
        """Return the weights at which y = act(x), (channels, kernel)."""
        weight = torch.zeros(sum(self.channels), self.kernel)
        weight[:, self.before] = 1
        return weight

    def forward(
        self, qkv: Vectors, tokens: Tokens, key_tokens: Tokens, window: Tensor | None = None
    ) -> tuple[Vectors, Tensor | None]:
        """Return the convolved queries, keys and values, and the window after the last token if causal.

        Args:
            qkv: queries, keys and values of shape (batch, heads, n, d).
            tokens, key_tokens: the tokens of queries and keys; the same object in self-attention.
            window: the last kernel - 1 inputs of a preceding state, (batch, kernel - 1, channels); None for zeros.
        """
        flat = [x.transpose(1, 2).flatten(2) for x in qkv]
        if key_tokens is tokens and _is_plain(tokens) and all(_runs_natively(x, self.weight) for x in flat):
            parts, after = self.convolve_natively(flat, tokens, window)
        elif key_tokens is tokens:
            y, after = self.convolve(torch.cat(flat, -1), self.weight, tokens, window)
            parts = y.split(self.channels, -1)
        else:  # cross-attention, whose queries and keys are tokens of two sequences
            of_q, of_kv = self.weight.tensor_split([self.channels[0]])
            q, after = self.convolve(flat[0], of_q, tokens)
            kv, _ = self.convolve(torch.cat(flat[1:], -1), of_kv, key_tokens)
            parts = (q, *kv.split(self.channels[1:], -1))
        q, k, v = (y.unflatten(-1, (x.shape[1], -1)).transpose(1, 2) for y, x in zip(parts, qkv, strict=True))
        return (q, k, v), after

    def convolve_natively(
        self, flat: list[Tensor], tokens: Tokens, window: Tensor | None
    ) -> tuple[list[Tensor], Tensor | None]:
        """Convolve queries, keys and values (batch, n, channels) in the native engine, without joining them first."""
        weights, act = self.weight.split(self.channels), CONVOLUTION_ACTIVATIONS[self.activation]
        windows = [None] * 3 if window is None else window.to(flat[0].dtype).split(self.channels, -1)
        parts = [
            act(convolve_native(x, w, first, self.before)) for x, w, first in zip(flat, weights, windows, strict=True)
        ]
        if not self.causal:
            return parts, None
        ends = torch.cat([x[:, 1 - self.kernel :] for x in flat], -1)
        return parts, self.window_after(self.line(ends, tokens, window), tokens)

    def convolve(
        self, x: Tensor, weight: Tensor, tokens: Tokens, window: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Convolve x (batch, n, channels) along its real tokens; return the same shape, and the window after it."""
        n = x.shape[1]
        slots = None if tokens.mask is None else _slots(tokens.mask)
        line = self.line(x if slots is None else _move(x, slots), tokens, window)
        with without_autocast(x):
            precise = weight.to(compute_dtype(x.dtype))
            if tokens.sequences is None:
                y = _convolve(line.to(precise.dtype), precise)
            else:
                y = _convolve_packed(line.to(precise.dtype), precise, self.owners(tokens, slots, x), self.before)
        y = CONVOLUTION_ACTIVATIONS[self.activation](y.to(x.dtype))
        if slots is not None:  # gather, because take_along_dim makes the sizes constant in an export
            y = y.gather(1, slots.clamp(max=n - 1)[..., None].expand_as(y))  # at padding y has no meaning
        return y, self.window_after(line, tokens) if self.causal else None

    def line(self, real: Tensor, tokens: Tokens, window: Tensor | None) -> Tensor:
        """Return the real tokens, those before them and those after them, (batch, n + kernel - 1, channels)."""
        batch, _, channels = real.shape
        if tokens.part is not None:
            return self.line_of_part(real, tokens)
        first = real.new_zeros(batch, self.before, channels) if window is None else window.to(real.dtype)
        return torch.cat([first, F.pad(real, (0, 0, 0, self.later))], 1)

    def line_of_part(self, real: Tensor, tokens: Tokens) -> Tensor:
        """Return the same for a part of a row, whose neighbours other processes hold."""
        assert tokens.part is not None
        earlier, later = fetch_halo(real, tokens, self.before, self.later)
        line = torch.cat([earlier, F.pad(real, (0, 0, 0, self.later))], 1)
        counts = real_before(tokens, real)
        ends = self.before + counts[:, tokens.part.rank + 1] - counts[:, tokens.part.rank]
        places = ends[:, None] + torch.arange(self.later, device=line.device)  # behind the last real token of each row
        return line.scatter(1, places[..., None].expand_as(later), later)

    def owners(self, tokens: Tokens, slots: Tensor | None, x: Tensor) -> Tensor:
        """Return the packed sequence of each token on the line, -1 beyond; (batch or 1, n + kernel - 1)."""
        if tokens.part is not None:
            return owners_around(tokens, x, self.before, self.later)
        assert tokens.sequences is not None
        owners = tokens.sequences if slots is None else _move_owners(tokens.sequences, slots)
        return F.pad(owners, (self.before, self.later), value=-1)

    def window_after(self, line: Tensor, tokens: Tokens) -> Tensor:
        """Return the last kernel - 1 tokens of the line, or of each packed sequence, zeros where there are fewer."""
        size = self.kernel - 1
        packed = tokens.sequences is not None or tokens.bounds is not None
        if tokens.mask is None and not packed:
            return line[:, line.shape[1] - size :].clone()  # a view would keep the whole line in memory
        rows, starts, ends = _spans(line, tokens, size)
        places = ends[:, None] + torch.arange(size, device=line.device)  # the line begins with ``size`` earlier tokens
        found = line[rows[:, None], places]
        return torch.where((places >= starts[:, None] + size)[..., None], found, 0) if packed else found

    def empty_window(self, batch: int) -> Tensor:
        """Return the window before the first token, (batch, kernel - 1, channels)."""
        return self.weight.new_zeros(batch, self.kernel - 1, len(self.weight))

    def check_window(self, window: Any, x: Tensor) -> None:
        """Check the window of a state before the tokens x (batch, n, width)."""
        check_real("state.window", window)
        shape = (x.shape[0], self.kernel - 1, sum(self.channels))
        require(
            tuple(window.shape) == shape and window.device == x.device,
            lambda: (
                f"state.window must have shape (batch, kernel - 1, channels of q, k, v) = {shape} on {x.device}; got "
                f"{tuple(window.shape)} on {window.device}."
            ),
        )

    def extra_repr(self) -> str:
        return f"channels={self.channels}, kernel={self.kernel}, activation={self.activation}, causal={self.causal}"


def _spans(line: Tensor, tokens: Tokens, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the real tokens whose window is wanted: rows of the line, and where their tokens start and end.

    There is one such span per row, of its last sequence, or one per packed sequence.
    """
    batch, n = line.shape[0], line.shape[1] - size
    real = _real(tokens, batch, n, line)
    if tokens.bounds is not None:
        count = F.pad(real[0].long().cumsum(0), (1, 0))[tokens.bounds]
        return (torch.zeros_like(count[1:]), count[:-1], count[1:])
    rows, ends = torch.arange(batch, device=line.device), real.sum(1)
    if tokens.part is not None and tokens.whole is not None:  # the last sequence may have begun before the part
        until = tokens.whole.until(tokens.part.stop)
        real = _real(until, batch, tokens.part.stop, line)
        starts = (real & _earlier(until, real)).sum(1) - real_before(tokens, line)[:, tokens.part.rank]
        return (rows, starts, ends)
    return (rows, (real & _earlier(tokens, real)).sum(1), ends)


def _real(tokens: Tokens, batch: int, n: int, like: Tensor) -> Tensor:
    """Return which tokens are real, (batch, n)."""
    return torch.ones(batch, n, dtype=torch.bool, device=like.device) if tokens.mask is None else tokens.mask


def _earlier(tokens: Tokens, real: Tensor) -> Tensor:
    """Return which tokens belong to another sequence than the last one, (batch or 1, n)."""
    return torch.zeros_like(real) if tokens.sequences is None else tokens.sequences != tokens.sequences[:, -1:]


def _slots(mask: Tensor) -> Tensor:
    """Return the index of each token among the real ones of its row, n for padding; (batch, n)."""
    return torch.where(mask, mask.long().cumsum(-1) - 1, mask.shape[1])


def _move(x: Tensor, slots: Tensor) -> Tensor:
    """Move the real tokens of x (batch, n, channels) to the left, with zeros after them."""
    places = slots[..., None].expand_as(x)
    batch, n, channels = x.shape
    return x.new_zeros(batch, n + 1, channels).scatter(1, places, x)[:, :n]  # slot n is where padding goes


def _move_owners(sequences: Tensor, slots: Tensor) -> Tensor:
    """Move the sequence of each real token as ``_move`` does the token; (batch or 1, n) -> (batch, n)."""
    return _move(sequences.expand(slots.shape)[..., None], slots)[..., 0]


def _convolve(line: Tensor, weight: Tensor) -> Tensor:
    """Σ_i w_i ⊙ line_{t + i}: (batch, n + kernel - 1, channels) -> (batch, n, channels).

    Term by term in a compiler, which would make the length of torch's convolution a constant.
    """
    n = line.shape[1] - weight.shape[1] + 1
    if torch.compiler.is_compiling() or n == 0:  # no token, which torch's convolution refuses
        return reduce(torch.add, (line[:, i : i + n] * weight[:, i] for i in range(weight.shape[1])))
    if n == 1:  # a decoded token, in less than half the time of torch's convolution
        return (line * weight.mT).sum(1, keepdim=True)
    before = weight.shape[1] - 1
    if _runs_natively(line[:, before:], weight):
        return convolve_native(line[:, before:], weight, line[:, :before], before)
    return F.conv1d(line.mT, weight[:, None], groups=len(weight)).mT


def _runs_natively(x: Tensor, weight: Tensor) -> bool:
    """Return whether the native engine convolves x (batch, n, channels)."""
    return can_convolve(x, weight) and allows("native")


def _is_plain(tokens: Tokens) -> bool:
    """Return whether every row is one whole sequence without padding."""
    return tokens.mask is None and tokens.sequences is None and tokens.bounds is None and tokens.part is None


def _convolve_packed(line: Tensor, weight: Tensor, around: Tensor, before: int) -> Tensor:
    """Convolve within packed sequences, given the sequence of each token on the line: tokens of others count as 0."""
    kernel = weight.shape[1]
    n = line.shape[1] - kernel + 1
    owners = around[:, before : before + n]
    y = torch.zeros_like(line[:, :n])
    for i in range(kernel):
        seen = torch.where((around[:, i : i + n] == owners)[..., None], line[:, i : i + n], 0)
        y = y + seen * weight[:, i]
    return y


def choose_convolution(
    kernel: Any, activation: Any, channels: tuple[int, int, int], *, causal: bool, axes: int
) -> ShortConvolution | None:
    """Return the convolution of a layer, or None if ``kernel`` is None.

    Raises:
        LrpeError: for tokens on a grid, which have no neighbours along a sequence, or an activation of nothing.
    """
    if kernel is None:
        require(
            activation is None,
            f"convolution_activation acts on a convolution; got convolution_activation={activation!r} and "
            "convolution=None. Pass a kernel size, such as convolution=4.",
        )
        return None
    require(
        axes == 1,
        f"A convolution runs along a sequence; this encoding has a grid of {axes} axes. Pass convolution=None.",
    )
    return ShortConvolution(channels, kernel, activation, causal)


def fetch_halo(real: Tensor, tokens: Tokens, before: int, after: int) -> tuple[Tensor, Tensor]:
    """Return the last ``before`` real tokens before a part and the first ``after`` ones after it: its halo.

    The part's own real tokens are the first of ``real`` (batch, n, channels), and there are zeros where the row has no
    token. Each process sends its own outermost tokens, whose number does not depend on n. A part may be shorter than
    the halo, which then reaches into the parts beyond it.
    """
    assert tokens.part is not None
    part, counts = tokens.part, real_before(tokens, real)
    own = counts[:, part.rank + 1] - counts[:, part.rank]  # real tokens of the own part, (batch,)
    first = _take(real, torch.arange(after, device=real.device).expand(len(own), -1), own)
    last = _take(real, own[:, None] - before + torch.arange(before, device=real.device), own)
    edges = part.gather(torch.cat([first, last], 1).to(compute_dtype(real.dtype))).to(real.dtype)
    firsts, lasts = edges.split([after, before], 2)  # (processes, batch, after or before, channels)
    left = counts[:, part.rank, None] - before + torch.arange(before, device=real.device)
    right = counts[:, part.rank + 1, None] + torch.arange(after, device=real.device)
    return _pick(lasts, left, counts, before, end=1), _pick(firsts, right, counts, 0, end=0)


def real_before(tokens: Tokens, like: Tensor) -> Tensor:
    """Return the number of a row's real tokens before each part, and in the row; (batch, processes + 1)."""
    assert tokens.part is not None
    borders = torch.tensor(tokens.part.borders, device=like.device)
    mask = None if tokens.whole is None else tokens.whole.mask
    if mask is None:
        return borders.expand(like.shape[0], -1)
    return F.pad(mask.long().cumsum(-1), (1, 0))[:, borders]


def owners_around(tokens: Tokens, like: Tensor, before: int, after: int) -> Tensor:
    """Return the packed sequence of the own real tokens and those around them, -1 beyond the row.

    It is (batch, before + n + after); the real tokens of a row follow each other, as on a convolution's line.
    """
    assert tokens.part is not None
    assert tokens.whole is not None
    assert tokens.whole.sequences is not None
    counts, mask = real_before(tokens, like), tokens.whole.mask
    owners = tokens.whole.sequences.expand(like.shape[0], -1)
    if mask is not None:  # to the left, in their order
        owners = owners.gather(1, (~mask).long().argsort(dim=1, stable=True))
    first = counts[:, tokens.part.rank, None] - before
    places = first + torch.arange(before + like.shape[1] + after, device=like.device)
    inside = (places >= 0) & (places < counts[:, -1:])
    return torch.where(inside, owners.gather(1, places.clamp(0, max(owners.shape[1] - 1, 0))), -1)


def _take(x: Tensor, places: Tensor, count: Tensor) -> Tensor:
    """Return the tokens of x (batch, n, channels) at these places, 0 outside of 0 ... count - 1."""
    inside = (places >= 0) & (places < count[:, None])
    padded = F.pad(x, (0, 0, 0, 1))  # so that a part without tokens has a place to read
    found = padded.gather(1, places.clamp(0, x.shape[1])[..., None].expand(-1, -1, x.shape[2]))
    return torch.where(inside[..., None], found, 0)


def _pick(edges: Tensor, places: Tensor, counts: Tensor, size: int, end: int) -> Tensor:
    """Return the tokens at these places among a row's real ones from the edges that the processes sent.

    An edge of ``size`` tokens ends with its part (end = 1); one of size 0 here begins with it (end = 0).
    """
    owner = (places[..., None] >= counts[:, None, 1:]).sum(-1).clamp(max=edges.shape[0] - 1)  # the part of each place
    slot = places - counts.gather(1, owner + end) + size
    inside = (places >= 0) & (places < counts[:, -1:])
    rows = torch.arange(places.shape[0], device=places.device)[:, None]
    return torch.where(inside[..., None], edges[owner, rows, slot.clamp(0, max(edges.shape[2] - 1, 0))], 0)

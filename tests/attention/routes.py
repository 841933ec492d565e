"""The ways to the same sums: whole, chunk by chunk, in pieces, step by step, packed, padded on either side."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lrpe import LinearAttention
from lrpe.attention import Normalizer
from lrpe.attention.choices import Summation
from lrpe.attention.normalizer import Features
from lrpe.attention.sums.problem import Problem, Sums, pair_weights


class Result(NamedTuple):
    """What attention makes of some texts: their tokens one after another, and a state for each text."""

    numerator: Tensor  # (tokens, heads, e)
    delta: Tensor  # (tokens, heads, 1 or 0)
    out: Tensor  # (tokens, heads, e), normalised
    y: Tensor  # (tokens, width)
    S: Tensor | None = None  # (texts, key heads, f, e)
    z: Tensor | None = None
    position: Tensor | None = None  # (texts,)


class Recorder(Normalizer):
    """A normaliser that keeps what it is given and what it gives."""

    def __init__(self, inner: Normalizer):
        super().__init__()
        self.inner, self.seen = inner, []

    def delta_features(self, features: Features) -> Tensor | None:
        return self.inner.delta_features(features)

    def forward(self, numerator: Tensor, delta: Tensor | None) -> Tensor:
        out = self.inner(numerator, delta)
        self.seen.append((numerator, numerator[..., :0] if delta is None else delta, out))
        return out

    def take(self) -> list[Tensor]:
        """All that was seen since the last time, (batch, n, heads, ...)."""
        taken = [torch.cat(parts, 2).transpose(1, 2) for parts in zip(*self.seen, strict=True)]
        self.seen.clear()
        return taken


def recording(layer: LinearAttention) -> LinearAttention:
    layer.normalizer = Recorder(layer.normalizer)
    return layer


def run(layer: LinearAttention, x: Tensor, mask: Tensor | None = None, **options) -> Result:
    y, state = (
        layer.prefill(x, mask=mask, **options) if layer.summation.causal else (layer(x, mask=mask, **options), ())
    )
    return gather(layer, y, mask, state)


def gather(layer: LinearAttention, y: Tensor, mask: Tensor | None, state: Sequence[Tensor]) -> Result:
    real = torch.ones(y.shape[:2], dtype=torch.bool) if mask is None else mask
    return Result(*(part[real] for part in (*layer.normalizer.take(), y)), *state[:3])


def joined(results: Sequence[Result]) -> Result:
    return Result(*(None if parts[0] is None else torch.cat(parts) for parts in zip(*results, strict=True)))


def alone(layer: LinearAttention, texts: Sequence[Tensor]) -> Result:
    """Each text (1, n, width) by itself, at once."""
    return joined([run(layer, x) for x in texts])


def in_pieces(layer: LinearAttention, texts: Sequence[Tensor]) -> Result:
    """Each text in three passes from state to state, some of which may have no token at all."""
    results = []
    for x in texts:
        state, ys = layer.initial_state(1), []
        for piece in x.tensor_split(3, 1):
            y, state = layer.prefill(piece, state)
            ys.append(y)
        results.append(gather(layer, torch.cat(ys, 1), None, state))
    return joined(results)


def stepwise(layer: LinearAttention, texts: Sequence[Tensor], cut: int = 4) -> Result:
    """The first tokens at once, and then one after another."""
    results = []
    for x in texts:
        y, state = layer.prefill(x[:, :cut])
        ys = [y]
        for token in x[:, cut:].unbind(1):
            y, state = layer.step(token, state)
            ys.append(y[:, None])
        results.append(gather(layer, torch.cat(ys, 1), None, state))
    return joined(results)


def packed(layer: LinearAttention, texts: Sequence[Tensor]) -> Result:
    """All texts in one row, told apart by their boundaries."""
    bounds = torch.tensor([0, *(x.shape[1] for x in texts)]).cumsum(0)
    return run(layer, torch.cat(list(texts), 1), cu_seqlens=bounds)


def numbered(layer: LinearAttention, texts: Sequence[Tensor]) -> Result:
    """All texts in one row, told apart by a number a token; the same number serves every second text."""
    lengths = torch.tensor([x.shape[1] for x in texts])
    y = layer(torch.cat(list(texts), 1), sequences=(torch.arange(len(texts)) % 2).repeat_interleave(lengths))
    return gather(layer, y, None, ())


def padded(layer: LinearAttention, texts: Sequence[Tensor], left: bool) -> Result:
    """A row for each text, filled up with noise."""
    n = max(x.shape[1] for x in texts) + 1
    x = 10 * torch.randn(len(texts), n, texts[0].shape[-1], generator=torch.Generator().manual_seed(5)).to(texts[0])
    rows, mask = [], torch.zeros(len(texts), n, dtype=torch.bool)
    for i, text in enumerate(texts):
        m = text.shape[1]
        rows.append(torch.cat([x[i, m:], text[0]] if left else [text[0], x[i, m:]]))
        mask[i, slice(n - m, None) if left else slice(m)] = True
    return run(layer, torch.stack(rows), mask)


def padded_left(layer: LinearAttention, texts: Sequence[Tensor]) -> Result:
    return padded(layer, texts, left=True)


def padded_right(layer: LinearAttention, texts: Sequence[Tensor]) -> Result:
    return padded(layer, texts, left=False)


Route = Callable[[LinearAttention, Sequence[Tensor]], Result]
EITHER: tuple[Route, ...] = (alone, packed, numbered, padded_left, padded_right)
CAUSAL: tuple[Route, ...] = (*EITHER, in_pieces, stepwise)


class SizeOfScores(Summation):
    """Another summation, beside which Σ_s |w_ts (q_t·k_s)| is kept: what Δ is large or small against."""

    def __init__(self, inner: Summation):
        self.inner, self.causal, self.sizes = inner, inner.causal, []

    def __call__(self, problem: Problem) -> Sums:
        q, k = (problem.q, problem.k) if problem.delta_q is None else (problem.delta_q, problem.delta_k)
        w = pair_weights(problem._replace(causal=self.causal), q.dtype)
        group = q.shape[1] // k.shape[1]
        w = w if w.shape[1] == 1 else w.repeat_interleave(group, 1)
        scores = (w * (q @ k.repeat_interleave(group, 1).mT)).detach()
        self.sizes.append(scores.abs().sum(-1, keepdim=True).transpose(1, 2).flatten(0, 1))  # (tokens, heads, 1)
        return self.inner(problem)

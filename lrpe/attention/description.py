"""The description of an attention sum: its choices, the order of its tokens, and the problem before its features.

With token-dependent steps, the phase p_t = Σ_{τ ≤ t} u_τ replaces the position t.
"""

from collections.abc import Callable
from typing import Any, Generic, Literal, NamedTuple, TypeGuard, TypeVar

import torch
from torch import Tensor

from lrpe.attention.decay import decay_between
from lrpe.attention.feature_map import FeatureMap
from lrpe.attention.normalizer import EncodedDelta, Normalizer, OutputNorm, PlainDelta
from lrpe.attention.state import DecodingState
from lrpe.attention.sums.problem import Problem, Summation
from lrpe.attention.tokens import Tokens, positions_of
from lrpe.autograd import needs_gradient
from lrpe.encodings.basis import Householder, Identity
from lrpe.encodings.encoding import Encoding, EncodingTable, PositionalEncoding
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.encodings.phase import turns
from lrpe.encodings.unitary import Unitary
from lrpe.errors import check_real, require
from lrpe.positions import batched
from lrpe.precision import compute_dtype, in_float64, without_autocast

State = TypeVar("State")


class Choices(NamedTuple):
    """The independent choices of linear attention, beside the decay."""

    encoding: PositionalEncoding
    phi: FeatureMap
    normalizer: Normalizer
    summation: Summation


class Order(NamedTuple, Generic[State]):
    """The tokens of queries and keys, the decay and the step that each brings, and the state before the first."""

    tokens: Tokens
    keys: Tokens  # the same object in self-attention
    log_decay: Tensor | None = None  # log r of one step: (1, key heads, 1), or (batch, key heads, n) per token
    steps: Tensor | None = None  # (batch or 1, key heads or 1, n), and a last axis of angles if each has its own
    state: State | None = None


def _phases(steps: Tensor, tokens: Tokens, before: Tensor | None) -> Tensor:
    """Return p_t = p + Σ_{τ ≤ t} u_τ in float64, in the shape of the steps; ``before`` is the phase p of a state.

    A step over several positions counts several times, and padding takes no step. Packed sequences need no new start:
    only differences of phases within a sequence count.
    """
    u, distances = in_float64(steps), tokens.distances()
    if distances is not None:
        u = u * distances.view(distances.shape[0], 1, -1, *(1,) * (u.ndim - 3)).to(u.device)
    p = u.cumsum(2)
    if tokens.part is not None:  # before the features, so that it cannot be sent along with the sums of these
        return p + tokens.part.gather(u.sum(2, keepdim=True))[: tokens.part.rank].sum(0)
    if before is None:
        return p
    return p + (before if p.ndim == 3 else before.unsqueeze(2)).to(p.device)


def last_phase(p: Tensor, batch: int, key_heads: int) -> Tensor:
    """Return the phase after the last token, (batch, key heads, 1 or angles); 0 if there is no token."""
    if p.shape[2] == 0:
        return p.new_zeros(batch, key_heads, _phase_width(p))
    last = p[:, :, -1] if p.ndim == 4 else p[:, :, -1:]
    return last.expand(batch, key_heads, -1)


def _check_phase(phase: Any, steps: Tensor | None, k: Tensor) -> None:
    """Check the phase of a state before tokens with these steps and keys k (batch, key heads, n, d)."""
    require(
        (phase is None) == (steps is None),
        "state must have a phase if, and only if, the steps depend on the tokens. Make it with the same layer.",
    )
    if steps is None:
        return
    check_real("state.phase", phase)
    shape = (*k.shape[:2], _phase_width(steps))
    require(
        tuple(phase.shape) == shape,
        lambda: f"state.phase must have shape (batch, key heads, 1 or angles) = {shape}; got {tuple(phase.shape)}.",
    )


def _phase_width(steps: Tensor) -> int:
    """Return the last size of a phase for steps or phases with or without an axis of angles."""
    return steps.shape[3] if steps.ndim == 4 else 1


def phases_of(order: Order, k: Tensor) -> Tensor | None:
    """Return the phase of each token, continuing that of the state, or None if the steps are fixed."""
    before = None
    if order.state is not None:
        before = order.state.phase
        _check_phase(before, order.steps, k)
    return None if order.steps is None else _phases(order.steps, order.tokens, before)


def make_tables(
    encoding: PositionalEncoding, order: Order, phase: Tensor | None, q: Tensor, k: Tensor
) -> tuple[Any, Any]:
    """Return the encoding's tables for queries and keys, which are the same object in self-attention."""
    if phase is not None:
        table = encoding.phase_table(phase, q.dtype)
        return table, table
    _check_positions(encoding, order)
    tokens, keys = order.tokens, order.keys
    if keys is tokens:
        table = encoding.table(positions_of(tokens, q), q.dtype)
        return table, table
    return encoding.tables(positions_of(tokens, q), positions_of(keys, k), q.dtype)


def _check_positions(encoding: PositionalEncoding, order: Order) -> None:
    """Check that the positions of queries and keys are given if an encoding on a grid needs them."""
    given, axes = order.tokens.positions is not None and order.keys.positions is not None, encoding.axes
    require(given or axes == 1, f"An encoding of {axes} axes needs positions; pass positions=lrpe.positions.grid(...).")


def check_cross_attention(causal: bool, order: Order) -> None:
    """Check that cross-attention, which has no order of queries and keys, is not causal and counts no steps."""
    if order.keys is order.tokens:
        return
    require(
        not causal,
        "Cross-attention has no order of queries and keys, so its sum is bidirectional. Pass "
        'summation="bidirectional".',
    )
    require(
        order.log_decay is None,
        "A decay counts steps between tokens of one sequence; cross-attention has none. Pass decay=None.",
    )
    require(
        order.steps is None,
        "Token-dependent steps lead from token to token of one sequence; cross-attention has none. Use an encoding of "
        "fixed steps.",
    )


class Unencoded(NamedTuple):
    """A Problem whose features are M φ(x), with M = Λ P: P reflections or I, and Λ of any type, or I.

    Type 2's Λ is given by the phase p and the angle α of each rotation; Types 1 and 3 by their table. Queries and keys
    are the same tokens. Δ is summed from φ(x) ("plain"), from M φ(x) ("encoded") or absent; if it is there, the sum is
    divided by it.
    """

    q: Tensor  # (batch, heads, n, d)
    k: Tensor  # (batch, key heads, n, d)
    v: Tensor  # (batch, key heads, n, e)
    phi: Callable[[Tensor], Tensor]
    encoding: Encoding
    V: Tensor | None  # P x = x - 2 (x Vᵀ) U; None if P = I
    U: Tensor | None
    phase: Tensor | None  # p in float64, (batch or 1, key heads or 1, n, 1 or pairs), if Λ rotates by p α
    alpha: Tensor | None  # α in float64, (1 or key heads, 1, pairs)
    turn: Tensor | None  # (batch or 1, key heads or 1, n, ...): the table of another Λ
    mask: Tensor | None  # (batch, n): False for keys that are padding
    delta: Literal["plain", "encoded"] | None
    log_decay: Tensor | None = None  # as in a Problem
    S: Tensor | None = None
    z: Tensor | None = None
    causal: bool = True
    summary: bool = False  # whether the state after the last token is all that is wanted

    def shapes(self) -> Problem:
        """Return a problem with the shapes of the encoded one, and no values."""
        q, k = (x.new_empty(()).expand(*x.shape[:3], self.encoding.feature_dim) for x in (self.q, self.k))
        delta = {None: (None, None), "plain": (self.q, self.k), "encoded": (q, k)}[self.delta]
        return Problem(q, k, self.v, *delta)

    def encode(self) -> Problem:
        """Return the problem with its features computed."""
        plain_q, plain_k = self.phi(self.q), self._hide(self.phi(self.k))
        q, k = self._apply_encoding(plain_q), self._apply_encoding(plain_k)
        delta = (None, None) if self.delta is None else (plain_q, plain_k) if self.delta == "plain" else (q, k)
        return Problem(q, k, self.v, *delta, self.log_decay, self.S, self.z, self.causal)

    def _hide(self, x: Tensor) -> Tensor:
        return x if self.mask is None else torch.where(self.mask[:, None, :, None], x, 0)

    def _apply_encoding(self, x: Tensor) -> Tensor:
        basis = () if self.V is None or self.U is None else (self.V, self.U)
        return self.encoding(x, table=EncodingTable(basis, (self._table(compute_dtype(x.dtype)),)))

    def _table(self, dtype: torch.dtype) -> Tensor:
        if self.phase is not None and self.alpha is not None:
            return turns(self.phase, self.alpha, dtype, axis=-1).flatten(-2)
        return self.q.new_empty(1, 1, self.q.shape[2], 0) if self.turn is None else self.turn


class OneToken(NamedTuple):
    """S ← r S + k vᵀ and o = q S / Δ, for k and q that are M φ(x) of one token: P reflections or I, Λ rotations or I.

    Δ is summed from φ(x) ("plain"), from M φ(x) ("encoded") or absent; if it is there, o is divided by it. Nothing here
    has a gradient.
    """

    q: Tensor  # (batch, heads, 1, d)
    k: Tensor  # (batch, key heads, 1, d)
    v: Tensor  # (batch, key heads, 1, e)
    phi: Callable[[Tensor], Tensor]
    encoding: Encoding
    position: Tensor  # (batch or 1, 1) int64
    phase: Tensor | None  # takes the place of the position: (batch or 1, key heads or 1, 1), or with an axis of angles
    mask: Tensor | None  # (batch, 1): False for rows without a token
    delta: Literal["plain", "encoded"] | None
    log_decay: Tensor | None  # (batch or 1, key heads or 1, 1)
    S: Tensor  # before the token
    z: Tensor | None

    def encode(self) -> Problem:
        """Return the token with its features computed."""
        encoding, dtype = self.encoding, self.q.dtype
        table = encoding.table(self.position, dtype) if self.phase is None else encoding.phase_table(self.phase, dtype)
        plain_q, plain_k = self.phi(self.q), self.phi(self.k)
        if self.mask is not None:
            plain_k = torch.where(self.mask[:, None, :, None], plain_k, 0)
        q, k = encoding.query(plain_q, table), encoding.key(plain_k, table)
        delta = (None, None) if self.delta is None else (plain_q, plain_k) if self.delta == "plain" else (q, k)
        return Problem(q, k, self.v, *delta, self.log_decay, self.S, self.z)


def is_one_token(problem: Problem) -> bool:
    """Return whether a problem is one token after a state, so that nothing needs to be summed over tokens."""
    started = problem.S is not None and (problem.z is None) == (problem.delta_k is None)
    return problem.causal and started and problem.k.shape[2] == 1


_DELTAS: dict[type[Normalizer], Any] = {PlainDelta: "plain", EncodedDelta: "encoded"}


def describe_sum(
    q: Tensor, k: Tensor, v: Tensor, choices: Choices, order: Order, phase: Tensor | None
) -> Unencoded | None:
    """Return the problem before φ and the encoding, or None if these or the normaliser have another form."""
    encoding, normalizer = choices.encoding, choices.normalizer
    if (
        q.shape[2] < 2
        or not _is_reflection_and_table(encoding)
        or encoding.head_dim != q.shape[3]
        or order.keys is not order.tokens
    ):
        return None
    if order.state is not None and not choices.summation.causal:
        return None
    if type(normalizer) not in _DELTAS and not isinstance(normalizer, OutputNorm):
        return None
    with without_autocast(q):
        V, U = encoding.basis.table(compute_dtype(q.dtype)) or (None, None)
        rotation = _describe_turns(encoding, order, phase, q, k)
    if not _fits(k, *rotation):
        return None
    log_decay, delta = decay_between(order.log_decay, order.tokens), _DELTAS.get(type(normalizer))
    problem = Unencoded(q, k, v, choices.phi, encoding, V, U, *rotation, order.keys.mask, delta, log_decay)
    problem = problem._replace(causal=choices.summation.causal)
    if order.state is None:
        return problem
    check_state_fits(order.state, problem.shapes())
    return problem._replace(S=order.state.S, z=None if delta is None else order.state.z)


def _fits(k: Tensor, phase: Tensor | None, alpha: Tensor | None, turn: Tensor | None) -> bool:
    """Return whether p or Λ's table is of one or all rows and key heads of k, and α, which no row has, of the heads."""
    batch, heads = k.shape[:2]
    per_token = all(x is None or (x.shape[0] in (1, batch) and x.shape[1] in (1, heads)) for x in (phase, turn))
    return per_token and (alpha is None or alpha.shape[0] in (1, heads))


def _describe_turns(
    encoding: Encoding, order: Order, phase: Tensor | None, q: Tensor, k: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return p and α of an Unencoded whose Λ rotates pairs, or else the table of Λ; None for what there is not."""
    matrix = encoding.matrix
    if not isinstance(matrix, Orthogonal):
        return None, None, make_tables(encoding, order, phase, q, k)[0].matrix[0]
    if matrix.pairs == 0:
        return None, None, None
    if phase is None:
        _check_positions(encoding, order)
        positions = batched(positions_of(order.tokens, q), encoding.axes)
        if encoding.axes > 1:
            angle = matrix.angles(positions)
            return angle, angle.new_ones(1, 1, matrix.pairs), None
        phase = in_float64(positions).unsqueeze(1)
    return *matrix.angles.factors(phase), None


def describe_token(
    q: Tensor, k: Tensor, v: Tensor, choices: Choices, order: Order, phase: Tensor | None
) -> OneToken | None:
    """Return one token before φ and the encoding, or None if these have another form, or if a gradient is needed."""
    encoding, normalizer, state = choices.encoding, choices.normalizer, order.state
    assert state is not None
    if not choices.summation.causal or encoding.angle_count is None:
        return None
    if not _rotates_pairs(encoding) or encoding.head_dim != q.shape[3]:
        return None
    if type(normalizer) not in _DELTAS and not isinstance(normalizer, OutputNorm):
        return None
    log_decay, delta = decay_between(order.log_decay, order.tokens), _DELTAS.get(type(normalizer))
    if torch.is_grad_enabled() and needs_gradient(q, k, v, log_decay, phase, *state, *encoding.parameters()):
        return None
    assert order.tokens.positions is not None  # a state sets them
    place = order.tokens.positions, phase, order.keys.mask
    z = None if delta is None else state.z
    (batch, heads, _, d), e = k.shape, v.shape[3]
    _check_state(state, (batch, heads, d, e), 0 if delta is None else d, v.device)  # M keeps the width of φ(x)
    return OneToken(q, k, v, choices.phi, encoding, *place, delta, log_decay, state.S, z)


def _rotates_pairs(encoding: PositionalEncoding) -> TypeGuard[Encoding]:
    """Return whether an encoding is a rotation of pairs, or nothing, after reflections or nothing, and after φ."""
    return _is_reflection_and_table(encoding) and type(encoding.matrix) is Orthogonal


def _is_reflection_and_table(encoding: PositionalEncoding) -> TypeGuard[Encoding]:
    """Return whether an encoding is a Λ with one table, after reflections or nothing, and after φ.

    Queries and keys must be rotated alike: one table is described for both.
    """
    if type(encoding) is not Encoding or encoding.acts != "after" or encoding.score_scale != 1:
        return False
    if not encoding.one_for_both:
        return False
    basis, matrix = encoding.basis, encoding.matrix
    has_one_table = type(matrix) in (Unitary, Permutation) or (type(matrix) is Orthogonal and not matrix.alternating)
    return type(basis) in (Identity, Householder) and has_one_table


def check_state_fits(state: DecodingState, problem: Problem) -> None:
    """Refuse a state whose shapes or device differ from those of the input's features."""
    (batch, heads, _, f), v, summed = problem.k.shape, problem.v, problem.delta_k
    _check_state(state, (batch, heads, f, v.shape[-1]), 0 if summed is None else summed.shape[-1], v.device)


def _check_state(state: DecodingState, S: tuple[int, ...], delta_width: int, device: torch.device) -> None:
    """Refuse a state unless its S has this shape, its z the same batch and heads, and both are on this device."""
    expected, found = (S, (*S[:2], delta_width)), (state.S.shape, state.z.shape)
    require(found == expected, lambda: f"state must have S and z of shapes {expected}; got {(*map(tuple, found),)}.")
    devices = state.S.device, state.z.device, device
    one = devices[0] == devices[1] == device
    require(one, lambda: f"state must be on the input's device; got {sorted({*map(str, devices)})}.")

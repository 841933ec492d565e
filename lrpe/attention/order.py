"""The order of tokens as attention sees it: where they are, and what step and decay each brings."""

from typing import Any, Generic, NamedTuple, TypeVar

from torch import Tensor

from lrpe.attention.steps import check_phase, phases
from lrpe.attention.tokens import Tokens, positions_of
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import require

State = TypeVar("State")


class Order(NamedTuple, Generic[State]):
    """The tokens of queries and keys, the decay and the step that each brings, and the state before the first."""

    tokens: Tokens
    keys: Tokens  # the same object in self-attention
    log_decay: Tensor | None = None  # log r of one step: (1, key heads, 1), or (batch, key heads, n) per token
    steps: Tensor | None = None  # (batch or 1, key heads or 1, n), and a last axis of angles if each has its own
    state: State | None = None


def phases_of(order: Order, k: Tensor) -> Tensor | None:
    """Return the phase of each token, continuing that of the state, or None if the steps are fixed."""
    before = None
    if order.state is not None:
        before = order.state.phase
        check_phase(before, order.steps, k)
    return None if order.steps is None else phases(order.steps, order.tokens, before)


def make_tables(
    encoding: PositionalEncoding, order: Order, phase: Tensor | None, q: Tensor, k: Tensor
) -> tuple[Any, Any]:
    """Return the encoding's tables for queries and keys, which are the same object in self-attention."""
    if phase is not None:
        table = encoding.phase_table(phase, q.dtype)
        return table, table
    tokens, keys, axes = order.tokens, order.keys, encoding.axes
    given = tokens.positions is not None and keys.positions is not None
    require(given or axes == 1, f"An encoding of {axes} axes needs positions; pass positions=lrpe.positions.grid(...).")
    if keys is tokens:
        table = encoding.table(positions_of(tokens, q), q.dtype)
        return table, table
    return encoding.tables(positions_of(tokens, q), positions_of(keys, k), q.dtype)


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

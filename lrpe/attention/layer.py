"""The base of attention layers, and its parts: the sizes of heads, the projections and the output gate."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lrpe.attention.choices import Summation
from lrpe.attention.convolution import ShortConvolution, choose_convolution
from lrpe.attention.decay import Decay, DecayChoice, StepDecay, choose_decay
from lrpe.attention.description import Order, State
from lrpe.attention.engines.choice import allows
from lrpe.attention.engines.library import can_multiply, multiply
from lrpe.attention.inputs import Given, read_step_mask
from lrpe.attention.steps import SharedSteps, Steps, choose_steps
from lrpe.attention.tokens import Tokens, read_sides, read_tokens, zero_both_paddings
from lrpe.autograd import registered
from lrpe.encodings.encoding import PositionalEncoding
from lrpe.errors import check_count, check_rate, check_real, check_tensor, require, unknown_name


class Heads(NamedTuple):
    """The sizes of an attention layer."""

    width: int
    heads: int
    key_heads: int
    head_dim: int
    value_dim: int

    @classmethod
    def of(cls, width: int, heads: int, key_heads: int | None, head_dim: int | None, value_dim: int | None) -> "Heads":
        key_heads = heads if key_heads is None else key_heads
        for name, size in (("width", width), ("heads", heads), ("key_heads", key_heads)):
            check_count(name, size)
        require(
            heads % key_heads == 0,
            f"key_heads must divide heads; got heads={heads}, key_heads={key_heads}.",
        )
        require(
            head_dim is not None or width % heads == 0,
            f"width must be divisible by heads unless head_dim is given; got width={width}, heads={heads}.",
        )
        head_dim = width // heads if head_dim is None else head_dim
        value_dim = head_dim if value_dim is None else value_dim
        check_count("head_dim", head_dim)
        check_count("value_dim", value_dim)
        return cls(width, heads, key_heads, head_dim, value_dim)


class Projection(nn.Linear):
    """y = W x + b. A decoded token is one row, and its time that of reading W: the native kernel reads it in order."""

    weight: Tensor = registered("_parameters")
    bias: nn.Parameter | None = registered("_parameters")

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if can_multiply(input, weight, bias) and allows("native"):
            return multiply(input, weight, bias)
        return F.linear(input, weight, bias)


OUTPUT_GATES: dict[str, Callable[[Tensor], Tensor]] = {"sigmoid": torch.sigmoid, "silu": F.silu}


class OutputGate(nn.Module):
    """o_t ⊙ act(W x_t), on the joined heads before the output projection; act is σ or silu."""

    def __init__(self, width: int, joined: int, activation: str, bias: bool):
        super().__init__()
        if not isinstance(activation, str) or activation not in OUTPUT_GATES:
            raise unknown_name("output_gate", activation, [*OUTPUT_GATES, "None"])
        self.activation = activation
        self.proj = Projection(width, joined, bias=bias)

    def forward(self, heads: Tensor, x: Tensor) -> Tensor:
        """Gate the joined heads (batch, n, joined) by the tokens x (batch, n, width)."""
        return heads * OUTPUT_GATES[self.activation](self.proj(x))

    def extra_repr(self) -> str:
        return self.activation


def choose_output_gate(choice: Any, width: int, joined: int, bias: bool) -> OutputGate | None:
    """Return the output gate of a layer by name, or None."""
    return None if choice is None else OutputGate(width, joined, choice, bias)


class AttentionLayer(nn.Module, ABC, Generic[State]):
    """Base class: projections to heads and back, positions, decay and steps, and the passes over tokens.

    A subclass sets ``encoding`` and ``summation``, calls ``choose_order`` and ``choose_extras``, and defines ``weigh``,
    ``check_state`` and ``initial_state``.
    """

    q_proj: Projection = registered("_modules")
    k_proj: Projection = registered("_modules")
    v_proj: Projection = registered("_modules")
    o_proj: Projection = registered("_modules")
    encoding: PositionalEncoding = registered("_modules")
    summation: Summation
    decay: Decay | None = registered("_modules")
    steps: Steps | None
    convolution: ShortConvolution | None
    output_gate: OutputGate | None

    def __init__(self, sizes: Heads, bias: bool, qkv_bias: bool | None, dropout: float):
        super().__init__()
        self.sizes = sizes
        qkv_bias = bias if qkv_bias is None else qkv_bias
        for name, value in (("bias", bias), ("qkv_bias", qkv_bias)):
            require(
                isinstance(value, bool),
                lambda name=name, value=value: f"{name} must be True or False; got {name}={value!r}.",
            )
        check_rate("dropout", dropout)
        self.q_proj = Projection(sizes.width, sizes.heads * sizes.head_dim, bias=qkv_bias)
        self.k_proj = Projection(sizes.width, sizes.key_heads * sizes.head_dim, bias=qkv_bias)
        self.v_proj = Projection(sizes.width, sizes.key_heads * sizes.value_dim, bias=qkv_bias)
        self.o_proj = Projection(sizes.heads * sizes.value_dim, sizes.width, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def choose_order(self, decay: DecayChoice) -> None:
        """Set the decay, and the steps if the encoding takes them from the tokens."""
        self.decay = choose_decay(decay, self.encoding, self.sizes.key_heads, self.sizes.width)
        self.steps = choose_steps(self.encoding, self.sizes.width, self.sizes.key_heads)

    def choose_extras(self, output_gate: str | None, convolution: int | None, activation: str | None) -> None:
        """Set the output gate, and the convolution with its activation; each is absent if None."""
        width, heads, key_heads, head_dim, value_dim = self.sizes
        channels = heads * head_dim, key_heads * head_dim, key_heads * value_dim
        axes = self.encoding.axes
        self.convolution = choose_convolution(convolution, activation, channels, causal=self.causal, axes=axes)
        bias = self.o_proj.bias is not None
        self.output_gate = choose_output_gate(output_gate, width, heads * value_dim, bias)

    @property
    def causal(self) -> bool:
        return self.summation.causal

    @property
    def counts(self) -> bool:
        """Return whether the steps from token to token matter, beside the tokens' positions."""
        return self.decay is not None or self.steps is not None

    @abstractmethod
    def weigh(
        self, q: Tensor, k: Tensor, v: Tensor, order: Order[State], wants_state: bool
    ) -> tuple[Tensor, State | None]:
        """Return the sums over keys (batch, heads, n, value_dim), and the state after them if wanted and causal."""

    @abstractmethod
    def check_state(self, state: Any, x: Tensor) -> None:
        """Raise LrpeError unless the state fits this layer and the tokens x."""

    @abstractmethod
    def initial_state(self, batch: int) -> State:
        """Return the state before the first token."""

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        sequences: Tensor | None = None,
        *,
        cu_seqlens: Tensor | None = None,
        context_positions: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Attend from x (batch, n, width) to itself, or to a ``context`` (batch, m, width); return (batch, n, width).

        Args:
            x: the tokens' vectors.
            context: other tokens, all of which are seen; needs a bidirectional sum without a decay.
            positions: integers (n,) or (batch, n); (n, axes) or (batch, n, axes) on a grid. By default the real tokens
                of each sequence are counted from 0. Positions must not fall within a sequence if attention is causal
                or has a decay, and they do not separate packed sequences.
            mask: (batch, n), True (or 1) for real tokens. Values at padding, even NaN, have no effect.
            sequences: an integer per token, (n,) or (batch, n), that changes where another packed sequence begins.
            cu_seqlens: the boundaries of packed sequences in one row, (sequences + 1,), instead of ``sequences``.
            context_positions, context_mask: the same for the context.
        """
        seen = x if context is None else context
        self.check_inputs(x, seen)
        given, of_context = Given(positions, mask, sequences, cu_seqlens), Given(context_positions, context_mask)
        tokens, key_tokens = read_sides(
            x, context, given, of_context, self.encoding.axes, counts=self.counts, causal=self.causal
        )
        return self.attend(x, seen, tokens, key_tokens, wants_state=False)[0]

    def prefill(
        self,
        x: Tensor,
        state: State | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Attend causally, continuing a state if given; return the output and the state, or one per packed sequence.

        The arguments are those of ``forward``; a softmax layer takes no ``cu_seqlens`` here. In a loop use
        ``torch.inference_mode()``: otherwise each state keeps the autograd graph of all earlier tokens.
        """
        require(
            self.causal, 'Only a causal sum has a state; this layer sums both ways. Build it with summation="causal".'
        )
        axes = self.encoding.axes
        require(
            axes == 1,
            lambda: f"A state counts steps along a sequence; this encoding has a grid of {axes} axes. Use forward.",
        )
        self.check_inputs(x, x)
        if state is not None:
            self.check_state(state, x)
        given = Given(positions, mask, None, cu_seqlens)
        tokens = read_tokens(x, given, state=cast(Any, state), counts=self.counts, causal=True)
        out, after = self.attend(x, x, tokens, tokens, state)
        assert after is not None
        return out, after

    def step(self, x: Tensor, state: State, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """Attend with one token per row, (batch, width) -> (batch, width). A masked row has no token."""
        require(
            state is not None,
            "state must be a state of this layer, made by prefill(x) or initial_state(batch); got NoneType.",
        )
        check_tensor("x", x)
        require(x.ndim == 2, lambda: f"x must be one token per row, (batch, width); got {tuple(x.shape)}. See prefill.")
        out, state = self.prefill(x.unsqueeze(1), state, mask=read_step_mask(mask))
        return out.squeeze(1), state

    def attend(
        self,
        x: Tensor,
        context: Tensor,
        tokens: Tokens,
        context_tokens: Tokens,
        state: State | None = None,
        wants_state: bool = True,
    ) -> tuple[Tensor, State | None]:
        """Attend with checked tokens; return the output, and the state after them if it is wanted and causal."""
        x, context = zero_both_paddings(x, context, tokens.mask, context_tokens.mask)
        q, k, v = self.project(x, context)
        window = self.window_of(state, x)
        if self.convolution is not None:
            (q, k, v), window = self.convolution((q, k, v), tokens, context_tokens, window)
        order = Order(tokens, context_tokens, *self.log_decay_and_steps(context), state)
        out, after = self.weigh(q, k, v, order, wants_state)
        if self.convolution is not None and after is not None:
            after = cast(Any, after).with_window(window)
        return self.join(out, x), after

    def window_of(self, state: Any, x: Tensor) -> Tensor | None:
        """Return the checked window of the convolution in a state before the tokens x."""
        if state is None:
            return None
        require(
            (state.window is None) == (self.convolution is None),
            "state must have a window if, and only if, the layer has a convolution. Make it with the same layer.",
        )
        if self.convolution is not None:
            self.convolution.check_window(state.window, x)
        return state.window

    def log_decay_and_steps(self, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return log r and the steps of the tokens x, each None if the layer has none."""
        steps = None if self.steps is None else self.steps(x)
        if isinstance(self.decay, StepDecay):
            assert isinstance(self.steps, SharedSteps)  # choose_decay checks it
            return self.decay(self.steps.delta(x)), steps
        return None if self.decay is None else self.decay(x), steps

    def check_inputs(self, x: Tensor, context: Tensor) -> None:
        width = self.sizes.width
        check_real("x", x)
        if context is not x:
            check_real("context", context, x)
        require(
            x.ndim == context.ndim == 3
            and x.shape[-1] == context.shape[-1] == width
            and x.shape[0] == context.shape[0],  # not len(x), which would become a constant in an export
            lambda: (
                f"x and context must share the batch and have shape (batch, n, width) with width={width}; "
                f"got {tuple(x.shape)} and {tuple(context.shape)}."
            ),
        )
        self.check_weights(x, context)

    def check_weights(self, x: Tensor, context: Tensor) -> None:
        """Check device and dtype of the inputs, unless the weights are quantised or offloaded: those convert on use."""
        weight = self.q_proj.weight
        if not weight.is_floating_point() or weight.device.type == "meta":
            return
        require(x.device == weight.device, lambda: f"x must be on the layer's {weight.device}; got {x.device}.")
        require(
            x.dtype == context.dtype == weight.dtype or torch.is_autocast_enabled(x.device.type),
            lambda: (
                f"x and context must have the dtype of the weights, {weight.dtype}; got {x.dtype} and {context.dtype}. "
                "Convert one of them, or use torch.autocast."
            ),
        )

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project x (batch, n, width) to queries (batch, heads, n, head_dim), and the context to keys and values."""
        heads, key_heads = self.sizes.heads, self.sizes.key_heads
        q = _split_heads(self.q_proj(x), heads)
        return q, _split_heads(self.k_proj(context), key_heads), _split_heads(self.v_proj(context), key_heads)

    def join(self, heads: Tensor, x: Tensor) -> Tensor:
        """Join the heads, gate them by the tokens x, and project; (batch, heads, n, value_dim) -> (batch, n, width)."""
        batch, count, n, width = heads.shape
        # one token's rows are in order, and for one token calls cost more than arithmetic
        joined = heads.reshape(batch, 1, count * width) if n == 1 else heads.transpose(1, 2).flatten(2)
        y = self.o_proj(joined if self.output_gate is None else self.output_gate(joined, x))
        return self.dropout(y) if self.training else y


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, n, heads · d) -> (batch, heads, n, d)."""
    batch, n, width = x.shape
    if n == 1:  # already in order, and for one token calls cost more than arithmetic
        return x.view(batch, heads, 1, width // heads)
    return x.view(batch, n, heads, width // heads).transpose(1, 2)

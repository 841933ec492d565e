"""Any value in any argument is taken or refused with an LrpeError: no call ends in an error of Python's or torch's."""

import math
from contextlib import suppress

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lrpe import (
    Bidirectional,
    Causal,
    DecodingState,
    LinearAttention,
    LrpeError,
    OutputNorm,
    PlainDelta,
    Quadratic,
    SoftmaxAttention,
    configure,
    encoding,
    linear_attention,
    positions,
    spread_decay,
)
from lrpe.attention import ClampedDelta, FixedDecay, GatedDecay, KeyValueState, LearnedDecay, Steps, tnl_decay
from tests.encodings.compositions import features

X, Q, LONG = features(2, 5, 8), features(2, 4, 5, 6), torch.arange(5)
ROW = torch.ones(2, 5, dtype=torch.bool)
NUMBERS = [None, True, False, 0, -1, 1, 3, 10**30, 2**63, math.nan, math.inf, -math.inf, 0.5, 1e-320, 1j]
THINGS = ["", "type2", "spread", "\0", b"x", (), [], [None], ["a"], [[1], [2, 3]], {}, {"a": 1}, set(), object(), int]
OBJECTS = [
    torch.exp,
    torch.nn.Linear(6, 6),
    torch.uint8,
    torch.device("cpu"),
    encoding("rope", 6),
    encoding("rope", 4, axes=2),
    encoding("per", 6, heads=2),
    configure("type1", 6),
    Causal(),
    Quadratic(),
    PlainDelta(),
    DecodingState(None, None, None),  # pyright: ignore[reportArgumentType]
    DecodingState(features(2, 4, 6, 6), features(2, 4, 6), torch.zeros(2)),
    DecodingState(features(2, 4, 6, 6), features(2, 4, 6), torch.zeros(2, dtype=torch.long)),
    DecodingState(features(2, 4, 6, 6), features(2, 4, 6), torch.zeros(2, dtype=torch.long), torch.zeros(2, 4, 3)),
    FixedDecay([0.9] * 4),
    LearnedDecay([0.9] * 2),
    GatedDecay([0.9] * 4, 8),
    GatedDecay([0.9] * 4, 5),
    KeyValueState(None, 1, "a", {}),  # pyright: ignore[reportArgumentType]
    KeyValueState(features(2, 4, 3, 2), features(2, 4, 3, 2), torch.zeros(2, 3, dtype=torch.long), None),
    KeyValueState(features(2, 4, 3, 2), features(2, 4, 3, 2), torch.zeros(2, 3), torch.ones(2, 3)),
    KeyValueState(features(2, 4, 3, 2).float(), features(2, 4, 3, 2), torch.zeros(2, 3, dtype=torch.long), None),
    KeyValueState(features(2, 4, 3, 2), features(2, 4, 3, 2), torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 4)),
]
TENSORS = [
    torch.full((2, 4, 5), -math.inf),
    torch.full((1, 1, 5, 3), math.nan),
    -features(2, 4, 5).abs().half(),
    torch.tensor(1.0),
    torch.tensor([]),
    torch.zeros(3),
    torch.zeros(2, 5),
    torch.full((2, 5), math.nan),
    ROW,
    ROW.long(),
    ROW.to("meta"),
    LONG,
    LONG.flip(0),
    LONG + 2**62,
    LONG.to("meta"),
    LONG.to_sparse(),
    torch.tensor([0, 5]),
    torch.tensor([0.9, math.nan]),
    X,
    X.float(),
    X.to("meta"),
    X.to(torch.complex64),
    Q,
    Q.half(),
    Q.long(),
    Q.bool(),
    Q.to("meta"),
    Q[:0],
    Q[:, :0],
    Q[:, :, :0],
    Q[..., :0],
    Q[None],
    torch.nn.Parameter(torch.ones(2)),
]
ANYTHING = st.sampled_from([*NUMBERS, *THINGS, *OBJECTS, *TENSORS])
CHOICES = {
    "encoding": st.sampled_from(
        ["type1", "type2", "type3", "rope", "none", "per", "spe", "selective", "selective-free"]
    ),
    "feature_map": st.sampled_from(["elu+1", "relu", "exp", "favor+"]),
    "normalizer": st.sampled_from(["plain", "encoded", "clamped", "output", "output-rms-head"]),
    "summation": st.sampled_from(["causal", "bidirectional", Quadratic()]),
    "decay": st.sampled_from([None, "spread", [0.9] * 4, "tnl", "learned", "gated"]),
}
TOLD = {
    "positions": st.just(LONG),
    "mask": st.just(ROW),
    "sequences": st.just(LONG // 3),
    "context_mask": st.just(ROW),
    "context_positions": st.just(LONG),
}
SIZES = {"width": st.just(8), "heads": st.just(4), "head_dim": st.just(2), "value_dim": st.just(2)}
SIZES |= {"key_heads": st.just(2), "bias": st.booleans(), "qkv_bias": st.booleans(), "dropout": st.just(0.1)}


def some(arguments, *needed):
    """Some of these arguments, and in one of them anything at all."""
    optional = {name: values for name, values in arguments.items() if name not in needed}
    drawn = st.fixed_dictionaries({name: arguments[name] for name in needed}, optional=optional)
    return st.tuples(drawn, st.sampled_from(sorted(arguments)), ANYTHING, st.integers(0, 2)).map(
        lambda parts: parts[0] | ({parts[1]: parts[2]} if parts[3] else {})
    )


VECTORS = {"q": st.just(Q), "k": st.just(Q), "v": st.just(Q)}
MORE = {
    "log_decay": st.sampled_from([-features(2, 4, 5).abs(), torch.zeros(1, 1, 5)]),
    "steps": st.sampled_from([features(2, 4, 5), features(1, 1, 5, 3)]),
    "cu_seqlens": st.just(torch.tensor([0, 2, 5])),
    "state": st.just(DecodingState(features(2, 4, 6, 6), features(2, 4, 6), torch.zeros(2, dtype=torch.long))),
    "attention": st.just("cross"),
    "layout": st.just("bnhd"),
    "output_final_state": st.booleans(),
}


@settings(max_examples=300, deadline=None)
@given(some(VECTORS | CHOICES | TOLD | MORE, *VECTORS))
def test_the_function_takes_or_refuses_anything(arguments):
    with suppress(LrpeError):
        linear_attention(**arguments)


@settings(max_examples=200, deadline=None)
@given(some(SIZES | CHOICES, "width", "heads"), some({"x": st.just(X)} | TOLD, "x"), ANYTHING, ANYTHING)
def test_the_linear_layer_takes_or_refuses_anything(choices, told, state, mask):
    with suppress(LrpeError):
        layer = LinearAttention(**choices).double()
        with suppress(LrpeError):
            layer(**told)
        with suppress(LrpeError):
            layer.prefill(told["x"], state, mask=mask)
        with suppress(LrpeError):
            layer.step(X[:, 0], layer.initial_state(2), mask)
        layer.initial_state(state)


SOFTMAX = {name: values for name, values in (SIZES | CHOICES).items() if name not in ("feature_map", "normalizer")}
SOFTMAX |= {"attention_dropout": st.just(0.1), "scale": st.just(0.5)}


@settings(max_examples=200, deadline=None)
@given(some(SOFTMAX, "width", "heads"), some({"x": st.just(X)} | TOLD, "x"), ANYTHING, ANYTHING)
def test_the_softmax_layer_takes_or_refuses_anything(choices, told, state, mask):
    with suppress(LrpeError):
        layer = SoftmaxAttention(**choices).double()
        with suppress(LrpeError):
            layer(**told)
        with suppress(LrpeError):
            layer.prefill(told["x"], state, mask=mask)
        with suppress(LrpeError):
            layer.step(X[:, 0], layer.initial_state(2), mask)
        layer.reserve(2, state)


MAKERS = [
    spread_decay,
    tnl_decay,
    FixedDecay,
    LearnedDecay,
    lambda value: GatedDecay(value, 8),
    Causal,
    Bidirectional,
    ClampedDelta,
    positions.sequence,
    positions.grid,
    positions.padded,
]
MAKERS += [positions.packed, lambda value: OutputNorm(2, value), lambda value: OutputNorm(2, 2, value)]
MAKERS += [
    lambda value: GatedDecay([0.5], value),
    lambda value: tnl_decay(2, value),
    lambda value: tnl_decay(2, 1, value),
]
MAKERS += [lambda value: Steps(8, value), lambda value: Steps(value, 2, 3), lambda value: Steps(8, 2, value)]
MAKERS += [lambda value: OutputNorm(2, 2, over=value), lambda value: positions.sequence(2, value)]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(MAKERS), ANYTHING)
def test_so_do_the_parts_that_they_are_made_of(make, value):
    with suppress(LrpeError):
        make(value)

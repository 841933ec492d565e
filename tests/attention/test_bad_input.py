"""What cannot be meant is an LrpeError with the values in it, never a silent broadcast."""

import pytest
import torch

from lrpe import Bidirectional, Causal, DecodingState, LinearAttention, LrpeError, encoding, linear_attention
from lrpe.attention.choices import choose_summation
from tests.attention.choices import WIDTH

X = torch.ones(2, 5, WIDTH)
Q = torch.ones(2, 4, 5, 6)
META = torch.device("meta")


def layer(**changes):
    return LinearAttention(WIDTH, 4, **{"encoding": "rope", "key_heads": 2, "head_dim": 6} | changes)


def state(batch=2, **changes):
    return layer(**changes).initial_state(batch)


BUILT = {
    "key heads that divide nothing": ({"key_heads": 3}, r"heads=4, key_heads=3"),
    "no key heads": ({"key_heads": 0}, r"key_heads=0"),
    "a width that heads do not divide": ({"heads": 3, "key_heads": None, "head_dim": None}, r"width=8, heads=3"),
    "a size of 0": ({"value_dim": 0}, r"value_dim=0"),
    "an encoding for another size": ({"encoding": encoding("rope", 4)}, r"size 6 here.*head_dim=4"),
    "an encoding for other heads": ({"encoding": encoding("type2", 6, heads=4)}, r"2 key heads; got heads=4"),
    "an encoding of another kind": ({"encoding": 3}, r"got int"),
    "an unknown encoding": ({"encoding": "ropes"}, r"no encoding named 'ropes'.*'rope'"),
    "an unknown summation": ({"summation": "causl"}, r"no summation named 'causl'.*'causal'"),
    "a decay too short": ({"decay": [0.9]}, r"2 of them; got torch.float64 of shape \(1,\)"),
    "a decay that grows": ({"decay": [0.9, 1.5]}, r"0 < r ≤ 1; got \[0.9, 1.5\]"),
    "a decay of 0": ({"decay": [0.9, 0.0]}, r"0 < r ≤ 1"),
    "a decay that is no number": ({"decay": [0.9, float("nan")]}, r"0 < r ≤ 1"),
    "a decay that wants a gradient": ({"decay": torch.ones(2, requires_grad=True)}, r"not require a gradient"),
    "a second decay": ({"encoding": encoding("per", 6, heads=2), "decay": [0.9, 0.9]}, r"brings its own decay"),
}


@pytest.mark.parametrize(("changes", "words"), BUILT.values(), ids=BUILT)
def test_a_layer_that_cannot_be_is_refused_when_it_is_built(changes, words):
    sizes = {"heads": 4, "encoding": "rope", "key_heads": 2, "head_dim": 6} | changes
    with pytest.raises(LrpeError, match=words):
        LinearAttention(WIDTH, **sizes)


@pytest.mark.parametrize("make", [Causal, Bidirectional])
def test_a_chunk_of_no_tokens_is_refused(make):
    with pytest.raises(LrpeError, match="chunk=0"):
        make(chunk=0)


CALLED = {
    "no batch": (lambda: layer()(X[0]), r"\(batch, n, width\) with width=8; got \(5, 8\)"),
    "another width": (lambda: layer()(X[..., :6]), r"width=8; got \(2, 5, 6\)"),
    "a context of another batch": (lambda: layer(summation="bidirectional")(X, X[:1]), r"\(2, 5, 8\) and \(1, 5, 8\)"),
    "a float mask": (lambda: layer()(X, mask=torch.ones(2, 5)), r"torch.float32 of shape \(2, 5\)"),
    "an additive mask": (lambda: layer()(X, mask=torch.zeros(2, 1, 5, 5)), r"shape \(2, 1, 5, 5\)"),
    "a mask of pairs": (lambda: layer()(X, mask=torch.ones(2, 1, 5, 5).bool()), r"\(2, 1, 5, 5\).*n × n mask"),
    "a mask of another length": (lambda: layer()(X, mask=torch.ones(2, 4).bool()), r"\(2, 5\).*got.*\(2, 4\)"),
    "a mask of one row": (lambda: layer()(X, mask=torch.ones(1, 5).bool()), r"\(2, 5\).*got.*\(1, 5\)"),
    "a step's mask of pairs": (
        lambda: layer().step(X[:, 0], state(), torch.ones(2, 1, 1, 1).bool()),
        r"one entry per row, \(batch,\); got \(2, 1, 1, 1\)",
    ),
    "float positions": (lambda: layer()(X, positions=torch.arange(5.0)), r"torch.float32"),
    "positions of another length": (lambda: layer()(X, positions=torch.arange(4)), r"\(5,\) or \(2, 5\); got \(1, 4\)"),
    "positions of another batch": (lambda: layer()(X, positions=torch.ones(3, 5).long()), r"got \(3, 5\)"),
    "positions that fall under a decay": (
        lambda: layer(decay=[0.9, 0.9])(X, positions=torch.tensor([0, 1, 2, 1, 3])),
        r"never fall.*\(0, 3\)",
    ),
    "float sequence numbers": (lambda: layer()(X, sequences=torch.zeros(5)), r"integers.*torch.float32"),
    "too few sequence numbers": (lambda: layer()(X, sequences=torch.zeros(4).long()), r"got.*\(1, 4\)"),
    "boundaries and numbers": (
        lambda: layer()(X[:1], sequences=torch.zeros(5).long(), cu_seqlens=torch.tensor([0, 5])),
        r"one of the two",
    ),
    "boundaries of two rows": (lambda: layer()(X, cu_seqlens=torch.tensor([0, 5])), r"one row; got 2 rows"),
    "boundaries that end early": (lambda: layer()(X[:1], cu_seqlens=torch.tensor([0, 4])), r"tokens, 5; got 4"),
    "boundaries that fall": (lambda: layer()(X[:1], cu_seqlens=torch.tensor([0, 4, 3, 5])), r"\[0, 4, 3, 5\]"),
    "a context under a causal sum": (lambda: layer()(X, X), r"its sum is bidirectional"),
    "a context under a decay": (
        lambda: layer(summation="bidirectional", decay=[0.9, 0.9])(X, X),
        r"cross-attention has none",
    ),
    "a packed context": (
        lambda: layer(summation="bidirectional")(X, X, sequences=torch.zeros(5).long()),
        r"attend to themselves",
    ),
    "a context's mask without a context": (lambda: layer()(X, context_mask=torch.ones(2, 5).bool()), r"none was given"),
    "a state of a bidirectional sum": (lambda: layer(summation="bidirectional").prefill(X), r"Only a causal sum"),
    "a step without a state": (lambda: layer().step(X[:, 0], None), r"prefill\(x\) or initial_state.*got NoneType"),
    "a state of another kind": (lambda: layer().prefill(X, (1, 2)), r"DecodingState.*got tuple"),
    "a step of a whole text": (lambda: layer().step(X, state()), r"\(batch, width\); got \(2, 5, 8\)"),
    "a state of another batch": (lambda: layer().prefill(X, state(3)), r"2 rows.*\(3,\)"),
    "a state of one row": (lambda: layer().prefill(X, state(1)), r"2 rows.*\(1,\)"),
    "a state of another encoding": (
        lambda: layer().prefill(X, state(encoding="type1")),
        r"\(\(2, 2, 6, 6\), \(2, 2, 6\)\); got \(\(2, 2, 12, 6\), \(2, 2, 6\)\)",
    ),
    "a state of another normaliser": (lambda: layer().step(X[:, 0], state(normalizer="output")), r"\(2, 2, 0\)"),
    "a state of other values": (lambda: layer().step(X[:, 0], state(value_dim=1)), r"\(2, 2, 6, 1\)"),
    "a state of a single key head": (lambda: layer().prefill(X, state(key_heads=1)), r"got \(\(2, 1, 6, 6\)"),
    "positions before the state's": (
        lambda: layer().prefill(X, layer().prefill(X)[1], positions=torch.arange(4, 9)),
        r"next position, \[5, 5\]; got \[4\] as the least",
    ),
    "a state and packed sequences": (
        lambda: layer().prefill(X[:1], state(1), cu_seqlens=torch.tensor([0, 5])),
        r"start anew",
    ),
}


@pytest.mark.parametrize(("call", "words"), CALLED.values(), ids=CALLED)
def test_a_call_that_cannot_be_meant_is_refused(call, words):
    with pytest.raises(LrpeError, match=words):
        call()


ELSEWHERE = {
    "a mask": lambda: layer()(X, mask=torch.ones(2, 5, dtype=torch.bool, device=META)),
    "positions": lambda: layer()(X, positions=torch.arange(5, device=META)),
    "sequence numbers": lambda: layer()(X, sequences=torch.zeros(5, dtype=torch.long, device=META)),
    "cu_seqlens": lambda: layer()(X[:1], cu_seqlens=torch.tensor([0, 5], device=META)),
    "a context": lambda: layer(summation="bidirectional")(X, X.to(META)),
    "a context's mask": lambda: layer(summation="bidirectional")(
        X, X, context_mask=torch.ones(2, 5, device=META).bool()
    ),
    "a whole state": lambda: layer().prefill(X, state().each(lambda part: part.to(META))),
    "a state's sums": lambda: layer().prefill(X, state()._replace(S=state().S.to(META))),
    "keys": lambda: linear_attention(Q, Q.to(META), Q),
}


@pytest.mark.parametrize("call", ELSEWHERE.values(), ids=ELSEWHERE)
def test_what_lives_on_another_device_is_refused(call):
    with pytest.raises(LrpeError, match=r"meta"):
        call()


FUNCTION = {
    "three axes": ((Q[0], Q, Q), {}, r"got \(4, 5, 6\)"),
    "keys of another size": ((Q, Q[..., :4], Q), {}, r"\(2, 4, 5, 4\)"),
    "values of another length": ((Q, Q, Q[:, :, :4]), {}, r"\(2, 4, 4, 6\)"),
    "keys of one row": ((Q, Q[:1], Q[:1]), {}, r"\(1, 4, 5, 6\)"),
    "key heads that divide nothing": ((Q, Q[:, :3], Q[:, :3]), {}, r"\(2, 3, 5, 6\)"),
    "an encoding for another size": ((Q, Q, Q), {"encoding": encoding("rope", 4)}, r"head_dim=4; got \(2, 4, 5, 6\)"),
    "a decay too long": (
        (Q, Q[:, :2], Q[:, :2]),
        {"decay": [0.9] * 4},
        r"2 of them; got torch.float64 of shape \(4,\)",
    ),
    "a decay that grows": ((Q, Q, Q), {"decay": [1.5] * 4}, r"0 < r ≤ 1"),
    "a state of one row": (
        (Q, Q, Q),
        {"state": DecodingState(torch.zeros(1, 4, 6, 6), torch.zeros(1, 4, 6), torch.zeros(1).long())},
        r"2 rows.*\(1,\)",
    ),
    "a state of other sizes": (
        (Q, Q, Q),
        {"state": DecodingState(torch.zeros(2, 1, 6, 6), torch.zeros(2, 1, 6), torch.zeros(2).long())},
        r"\(2, 4, 6, 6\).*got.*\(2, 1, 6, 6\)",
    ),
    "keys of another length": (
        (Q[:, :, :3], Q, Q),
        {"summation": "bidirectional", "decay": None},
        r'3 queries and 5 keys. Pass attention="cross"',
    ),
    "positions of no context": ((Q, Q, Q), {"context_positions": torch.arange(5)}, r"none was given"),
    "a context under a causal sum": ((Q, Q, Q), {"attention": "cross", "decay": None}, r"its sum is bidirectional"),
    "a context that decays": (
        (Q, Q, Q),
        {"attention": "cross", "summation": "bidirectional"},
        r"cross-attention has none. Pass decay=None",
    ),
    "a packed context": (
        (Q, Q, Q),
        {"attention": "cross", "summation": "bidirectional", "decay": None, "sequences": torch.zeros(5).long()},
        r"attend to themselves",
    ),
    "an unknown attention": ((Q, Q, Q), {"attention": "crss"}, r"no attention named 'crss'.*'cross'"),
    "an unknown layout": ((Q, Q, Q), {"layout": "bhn"}, r"no layout named 'bhn'"),
    "a state under a bidirectional sum": (
        (Q, Q, Q),
        {"state": linear_attention(Q, Q, Q)[1], "summation": "bidirectional"},
        r"bidirectional sum cannot continue a state",
    ),
}


@pytest.mark.parametrize(("vectors", "options", "words"), FUNCTION.values(), ids=FUNCTION)
def test_the_function_refuses_as_the_layer_does(vectors, options, words):
    with pytest.raises(LrpeError, match=words):
        linear_attention(*vectors, **options)


def test_a_summation_is_a_name_or_an_object():
    assert choose_summation("causal") == Causal()
    assert choose_summation(Causal(3)) == Causal(3)


def test_a_feature_map_of_another_dtype_is_refused():
    q = torch.randn(1, 2, 3, 6, dtype=torch.float64)
    with pytest.raises(
        LrpeError, match=r"feature_map must have weights of q's dtype, torch.float64; got torch.float32"
    ):
        linear_attention(q, q, q, feature_map=torch.nn.Linear(6, 6))
    out, _ = linear_attention(q, q, q, feature_map=torch.nn.Linear(6, 6).double())
    assert out.dtype == torch.float64

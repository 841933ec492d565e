"""What softmax attention cannot do is refused with the law and the values."""

import math

import pytest
import torch

from lrpe import DecodingState, LrpeError, SoftmaxAttention, encoding
from lrpe.encodings import LearnedOrthogonal
from lrpe.theory import Additive
from tests.attention.softmax import WIDTH, make
from tests.encodings.compositions import features

X = features(2, 3, WIDTH)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: SoftmaxAttention(12, 5), "width=12, heads=5"),
        (lambda: SoftmaxAttention(12, 4, key_heads=3), "key_heads=3"),
        (lambda: SoftmaxAttention(12, 2, "rop"), "Did you mean 'rope'"),
        (lambda: SoftmaxAttention(12, 2, encoding("rope", 4)), "head_dim=4"),
        (lambda: SoftmaxAttention(12, 2, Additive(4)), "head_dim=4"),
        (lambda: SoftmaxAttention(12, 2, LearnedOrthogonal(6)), "LearnedOrthogonal"),  # type: ignore[arg-type]
        (lambda: SoftmaxAttention(12, 2, summation="casual"), "Did you mean 'causal'"),
        (lambda: SoftmaxAttention(12, 2, decay=[0.5]), "one r per key head"),
        (lambda: SoftmaxAttention(12, 2, decay=[0.5, 1.5]), "0 < r"),
        (lambda: SoftmaxAttention(12, 2, "per", decay=[0.5, 0.9]), "its own decay"),
        (lambda: SoftmaxAttention(12, 2, encoding("rope", 6, axes=2), decay=[0.5, 0.9]), "2 axes"),
        (lambda: SoftmaxAttention(12, 2, attention_dropout=1.5), "attention_dropout=1.5"),
        (lambda: SoftmaxAttention(12, 2, scale=math.nan), "scale=nan"),
        (lambda: SoftmaxAttention(12, 2, encoding("rope", 6, axes=2))(X.float()), "encoding of 2 axes needs positions"),
        (lambda: make()(X[..., :5]), "width=12"),
        (lambda: make()(X[0, 0]), "width=12"),
        (lambda: make()(X, mask=torch.ones(2, 4).bool()), "padding mask"),
        (lambda: make()(X, mask=torch.ones(2, 3)), "padding mask"),
        (lambda: make()(X, positions=torch.arange(4)), r"\(3,\)"),
        (lambda: make()(X, positions=torch.arange(3.0)), "integers"),
        (lambda: make()(X, X), "bidirectional"),
        (lambda: make("per", summation="bidirectional")(X, X), "cross-attention has none"),
        (lambda: make(summation="bidirectional")(X, X[:1]), "width=12"),
        (lambda: make(summation="bidirectional")(X, X, sequences=torch.zeros(3).long()), "Packed"),
        (lambda: make()(X, context_mask=torch.ones(2, 3).bool()), "none was given"),
        (lambda: make(summation="bidirectional").prefill(X), "Only a causal sum"),
        (lambda: SoftmaxAttention(12, 2, encoding("rope", 6, axes=2)).prefill(X.float()), "along a sequence"),
        (lambda: make().step(X[:, 0], None), "initial_state"),  # type: ignore[arg-type]
        (lambda: make().step(X, make().initial_state(2)), "one token per row"),
        (lambda: make().step(X[:, 0], make().initial_state(3)), r"got \[\(3, 2, 0, 6\)"),
        (lambda: make().step(X[:, 0], make("type1").initial_state(2)), "shapes"),
        (lambda: make().step(X[:, 0], DecodingState(X, X, X)), "got DecodingState"),  # type: ignore[arg-type]
        (lambda: make().prefill(X, make().prefill(X)[1], positions=torch.arange(3)), "the state's next position"),
    ],
)
def test_a_broken_law_is_named(wrong, message):
    with pytest.raises(LrpeError, match=message):
        wrong()

"""Linear and softmax attention with relative positions: functions, layers, normalisers, decay and decoding states."""

from lrpe.attention.decay import spread_decay
from lrpe.attention.functional import linear_attention
from lrpe.attention.key_values import KeyValueState
from lrpe.attention.linear_attention import LinearAttention
from lrpe.attention.normalizer import ClampedDelta, EncodedDelta, Normalizer, OutputNorm, PlainDelta
from lrpe.attention.softmax_attention import SoftmaxAttention
from lrpe.attention.state import DecodingState
from lrpe.attention.summation import Bidirectional, Causal, Quadratic

__all__ = [
    "linear_attention",
    "LinearAttention",
    "SoftmaxAttention",
    "Normalizer",
    "PlainDelta",
    "EncodedDelta",
    "OutputNorm",
    "ClampedDelta",
    "Causal",
    "Bidirectional",
    "Quadratic",
    "spread_decay",
    "DecodingState",
    "KeyValueState",
]

"""Linear and softmax attention with relative positions: functions, layers, normalisers, decay and decoding states."""

from lrpe.attention.decay import Decay, FixedDecay, GatedDecay, LearnedDecay, spread_decay, tnl_decay
from lrpe.attention.functional import linear_attention
from lrpe.attention.linear import LinearAttention
from lrpe.attention.normalizer import ClampedDelta, EncodedDelta, Normalizer, OutputNorm, PlainDelta
from lrpe.attention.softmax import SoftmaxAttention
from lrpe.attention.state import DecodingState, KeyValueState
from lrpe.attention.steps import Steps
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
    "Decay",
    "FixedDecay",
    "LearnedDecay",
    "GatedDecay",
    "spread_decay",
    "tnl_decay",
    "Steps",
    "DecodingState",
    "KeyValueState",
]

"""Linear and softmax attention with relative positions: functions, layers, normalisers, decay and decoding states."""

from lrpe.attention.choices import MEMBERS, Bidirectional, Causal, Member, Quadratic
from lrpe.attention.convolution import ShortConvolution
from lrpe.attention.decay import (
    Decay,
    FixedDecay,
    GatedDecay,
    LearnedDecay,
    StepDecay,
    retnet_decay,
    spread_decay,
    tnl_decay,
)
from lrpe.attention.functional import linear_attention
from lrpe.attention.layer import OutputGate
from lrpe.attention.linear import LinearAttention
from lrpe.attention.normalizer import ClampedDelta, EncodedDelta, Normalizer, OutputNorm, PlainDelta
from lrpe.attention.softmax import SoftmaxAttention
from lrpe.attention.state import DecodingState, KeyValueState
from lrpe.attention.steps import SharedSteps, Steps

__all__ = [
    "linear_attention",
    "LinearAttention",
    "SoftmaxAttention",
    "ShortConvolution",
    "OutputGate",
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
    "StepDecay",
    "spread_decay",
    "tnl_decay",
    "retnet_decay",
    "MEMBERS",
    "Member",
    "Steps",
    "SharedSteps",
    "DecodingState",
    "KeyValueState",
]

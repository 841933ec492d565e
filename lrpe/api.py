"""The public names of the core, which ``lrpe`` offers as its own."""

from lrpe import positions
from lrpe.attention.decay import spread_decay
from lrpe.attention.functional import linear_attention
from lrpe.attention.key_values import KeyValueState
from lrpe.attention.linear_attention import LinearAttention
from lrpe.attention.normalizer import ClampedDelta, EncodedDelta, Normalizer, OutputNorm, PlainDelta
from lrpe.attention.softmax_attention import SoftmaxAttention
from lrpe.attention.state import DecodingState
from lrpe.attention.summation import Bidirectional, Causal, Quadratic
from lrpe.encodings import angles
from lrpe.encodings.absolute import LearnedPositions, SinusoidalPositions
from lrpe.encodings.angles import Angles
from lrpe.encodings.basis import Basis, Identity, OddEven
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.family import configure, encoding
from lrpe.encodings.grid import Grid
from lrpe.encodings.householder import Householder
from lrpe.encodings.matrix_basis import Cosine, Dense, Fourier, LearnedOrthogonal
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.encodings.position_matrix import PositionMatrix
from lrpe.encodings.scaling import Interpolation, NTKAware, YaRN
from lrpe.encodings.stochastic import StochasticEncoding
from lrpe.encodings.unitary import Unitary
from lrpe.errors import LrpeError
from lrpe.theory.canonical import CanonicalForm, Primitive
from lrpe.theory.definition import verify
from lrpe.theory.derive import from_unitary
from lrpe.theory.instances import RPR, Additive, CosFormer, DeBERTa, FamilyForm, T5Buckets
from lrpe.theory.laws import Report
from lrpe.theory.linearizability import Linearizability, linearizability
from lrpe.weight_decay import parameter_groups

__all__ = [
    "Additive",
    "Angles",
    "Basis",
    "Bidirectional",
    "CanonicalForm",
    "Causal",
    "ClampedDelta",
    "CosFormer",
    "Cosine",
    "DeBERTa",
    "DecodingState",
    "Dense",
    "EncodedDelta",
    "Encoding",
    "EncodingConfig",
    "FamilyForm",
    "Fourier",
    "Grid",
    "Householder",
    "Identity",
    "Interpolation",
    "KeyValueState",
    "LearnedOrthogonal",
    "LearnedPositions",
    "LinearAttention",
    "Linearizability",
    "LrpeError",
    "NTKAware",
    "Normalizer",
    "OddEven",
    "Orthogonal",
    "OutputNorm",
    "Permutation",
    "PlainDelta",
    "PositionMatrix",
    "PositionalEncoding",
    "Primitive",
    "Quadratic",
    "RPR",
    "Report",
    "SinusoidalPositions",
    "SoftmaxAttention",
    "StochasticEncoding",
    "T5Buckets",
    "Unitary",
    "YaRN",
    "angles",
    "configure",
    "encoding",
    "from_unitary",
    "linear_attention",
    "linearizability",
    "parameter_groups",
    "positions",
    "spread_decay",
    "verify",
]

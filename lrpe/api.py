"""The names that ``lrpe`` itself offers, by idea; everything else is imported from its package."""

from lrpe import angles, parallel, positions
from lrpe.attention import engines
from lrpe.attention.choices import Bidirectional, Causal, Quadratic
from lrpe.attention.decay import spread_decay
from lrpe.attention.functional import linear_attention
from lrpe.attention.linear import LinearAttention
from lrpe.attention.normalizer import EncodedDelta, OutputNorm, PlainDelta
from lrpe.attention.softmax import SoftmaxAttention
from lrpe.attention.state import DecodingState
from lrpe.encodings.angles import Angles
from lrpe.encodings.basis import Basis, Householder, Identity
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import Encoding
from lrpe.encodings.family import configure, encoding
from lrpe.encodings.grid import Grid
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.encodings.position_matrix import PositionMatrix
from lrpe.encodings.unitary import Unitary
from lrpe.errors import LrpeError
from lrpe.theory.canonical import CanonicalForm
from lrpe.theory.definition import verify
from lrpe.theory.derive import from_unitary
from lrpe.theory.linearizability import linearizability
from lrpe.weight_decay import parameter_groups

__all__ = [
    # an encoding M_s = Λ^(s) P, by name or by its parts
    "encoding",
    "configure",
    "EncodingConfig",
    "Encoding",
    "Basis",
    "Identity",
    "Householder",
    "PositionMatrix",
    "Unitary",
    "Orthogonal",
    "Permutation",
    "Grid",
    "Angles",
    "angles",
    "positions",
    # the theory
    "verify",
    "linearizability",
    "from_unitary",
    "CanonicalForm",
    # attention
    "linear_attention",
    "LinearAttention",
    "SoftmaxAttention",
    "DecodingState",
    "Causal",
    "Bidirectional",
    "Quadratic",
    "PlainDelta",
    "EncodedDelta",
    "OutputNorm",
    "spread_decay",
    "engines",
    "parallel",
    # training, and the one exception
    "parameter_groups",
    "LrpeError",
]

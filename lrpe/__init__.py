"""Linearized relative positional encoding: the whole family, exact and verified."""

from lrpe import positions
from lrpe.encodings.absolute import LearnedPositions, SinusoidalPositions
from lrpe.encodings.angles import Angles
from lrpe.encodings.basis import (
    Basis,
    Cosine,
    Dense,
    Fourier,
    Householder,
    Identity,
    LearnedOrthogonal,
    OddEven,
)
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.definition import verify
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.family import configure, encoding
from lrpe.encodings.grid import Grid
from lrpe.encodings.laws import Report
from lrpe.encodings.linearizability import Linearizability, linearizability
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.encodings.position_matrix import PositionMatrix
from lrpe.encodings.scaling import Interpolation, NTKAware, YaRN
from lrpe.encodings.stochastic import StochasticEncoding
from lrpe.encodings.unitary import Unitary
from lrpe.errors import LrpeError

__all__ = [
    "Angles",
    "Basis",
    "Cosine",
    "Dense",
    "Encoding",
    "EncodingConfig",
    "Fourier",
    "Grid",
    "Householder",
    "Identity",
    "Interpolation",
    "LearnedOrthogonal",
    "LearnedPositions",
    "LrpeError",
    "NTKAware",
    "OddEven",
    "Orthogonal",
    "Permutation",
    "PositionMatrix",
    "PositionalEncoding",
    "Report",
    "Linearizability",
    "linearizability",
    "verify",
    "SinusoidalPositions",
    "StochasticEncoding",
    "Unitary",
    "YaRN",
    "configure",
    "encoding",
    "positions",
]

"""The family M_s = Λ^(s) P: bases P, position matrices Λ, their angles, and what composes them."""

from lrpe.encodings.absolute import LearnedPositions, SinusoidalPositions
from lrpe.encodings.angles import Angles, Interpolation, MixedAngles, NTKAware, YaRN
from lrpe.encodings.basis import Basis, Householder, Identity, OddEven
from lrpe.encodings.config import EncodingConfig
from lrpe.encodings.encoding import Encoding, PositionalEncoding
from lrpe.encodings.family import configure, encoding
from lrpe.encodings.grid import Grid
from lrpe.encodings.matrix_basis import Cosine, Dense, Fourier, LearnedOrthogonal
from lrpe.encodings.orthogonal import Orthogonal
from lrpe.encodings.permutation import Permutation
from lrpe.encodings.position_matrix import PositionMatrix
from lrpe.encodings.stochastic import StochasticEncoding
from lrpe.encodings.unitary import Unitary

__all__ = [
    # an encoding by name, or by its configuration
    "encoding",
    "configure",
    "EncodingConfig",
    # compositions
    "PositionalEncoding",
    "Encoding",
    "StochasticEncoding",
    # P
    "Basis",
    "Identity",
    "OddEven",
    "Householder",
    "Fourier",
    "Cosine",
    "Dense",
    "LearnedOrthogonal",
    # Λ
    "PositionMatrix",
    "Unitary",
    "Orthogonal",
    "Permutation",
    "Grid",
    # α
    "Angles",
    "MixedAngles",
    "Interpolation",
    "NTKAware",
    "YaRN",
    # absolute positions, which are added to embeddings
    "SinusoidalPositions",
    "LearnedPositions",
]

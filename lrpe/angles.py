"""α, the angles of one step: kinds by formula, and ``matching``, which finds those of a wished kernel."""

from lrpe.encodings.angles import (
    Angles,
    constant,
    geometric,
    half_turn,
    harmonic,
    high_frequency,
    linear,
    whole_fractions,
)
from lrpe.theory.matching import Matching, matching

__all__ = [
    "geometric",
    "linear",
    "harmonic",
    "constant",
    "half_turn",
    "whole_fractions",
    "high_frequency",
    "matching",
    "Matching",
    "Angles",
]

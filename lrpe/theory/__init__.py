"""The paper's theory as code: what an encoding must obey, what can be linear, and the canonical form."""

from lrpe.theory.canonical import CanonicalForm, Primitive
from lrpe.theory.definition import verify
from lrpe.theory.derive import from_unitary
from lrpe.theory.instances import RPR, Additive, CosFormer, DeBERTa, FamilyForm, T5Buckets
from lrpe.theory.kernels import exponential, gaussian, t5, window
from lrpe.theory.laws import Report
from lrpe.theory.linearizability import Linearizability, linearizability
from lrpe.theory.matching import Matching, matching

__all__ = [
    # Definition 3.1
    "verify",
    "Report",
    # which relative encodings are linear at all
    "linearizability",
    "Linearizability",
    # Theorem 3.3
    "from_unitary",
    # angles for a wished kernel, and kernels by name
    "matching",
    "Matching",
    "gaussian",
    "exponential",
    "window",
    "t5",
    # the canonical form and its instances
    "CanonicalForm",
    "Primitive",
    "Additive",
    "T5Buckets",
    "RPR",
    "DeBERTa",
    "CosFormer",
    "FamilyForm",
]

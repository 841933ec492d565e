"""The paper's theory as code: what an encoding must obey, what can be linear, and the canonical form."""

from lrpe.theory.canonical import CanonicalForm, Primitive
from lrpe.theory.definition import verify
from lrpe.theory.derive import from_unitary
from lrpe.theory.instances import RPR, Additive, CosFormer, DeBERTa, FamilyForm, T5Buckets
from lrpe.theory.laws import Report
from lrpe.theory.linearizability import Linearizability, linearizability

__all__ = [
    # Definition 3.1
    "verify",
    "Report",
    # which relative encodings are linear at all
    "linearizability",
    "Linearizability",
    # Theorem 3.3
    "from_unitary",
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

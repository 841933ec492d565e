"""Softmax attention layers to test: with every encoding and every canonical form."""

import pytest
import torch

from lrpe import SoftmaxAttention, configure, encoding
from lrpe.theory import RPR, Additive, CosFormer, DeBERTa, FamilyForm, T5Buckets
from tests.encodings.compositions import EVERY, NEEDED, features

WIDTH, HEADS, KEY_HEADS, D, E = 12, 4, 2, 6, 5
FORMS = {
    "Additive": lambda: Additive(D, max_distance=3),
    "T5": lambda: T5Buckets(D, num_buckets=8, max_distance=10),
    "RPR": lambda: RPR(D, max_distance=3),
    "DeBERTa": lambda: DeBERTa(D, max_distance=3),
    "CosFormer": lambda: CosFormer(D, alpha=0.3),
    "Family": lambda: FamilyForm(encoding("fourier*unitary", D)),
}
FIXED = tuple(
    name for name in EVERY if name not in ("selective", "selective-free", "switched", "mamba3")
)  # whose steps are all 1
CHOICES = (*FIXED, *FORMS)
FEW = ("type1", "type2", "type3", "per", "spe", "T5", "DeBERTa")
every = pytest.mark.parametrize("choice", CHOICES)
some = pytest.mark.parametrize("choice", FEW)


def chosen(choice):
    if choice in FORMS:
        return FORMS[choice]()
    per_head = {"heads": KEY_HEADS} if choice in ("per", "spe") else {}
    return configure(choice, D, **NEEDED.get(choice, {}) | per_head)


def make(choice="type2", **changes):
    """A layer of grouped queries, in float64 and in evaluation, the same each time, away from where learning starts."""
    torch.manual_seed(0)
    layer = SoftmaxAttention(WIDTH, HEADS, chosen(choice), KEY_HEADS, D, E, **changes).double().eval()
    with torch.no_grad():
        for i, weight in enumerate(layer.parameters()):
            weight += 0.1 * features(*weight.shape, seed=i)
    return layer

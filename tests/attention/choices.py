"""Encodings × features of Δ × decays, in one tuple that feeds the tests of linear attention."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from lrpe import LinearAttention, encoding, spread_decay
from lrpe.encodings import PositionalEncoding
from tests.encodings.compositions import features

WIDTH, HEADS, KEY_HEADS, D, E = 8, 4, 2, 6, 5
LEARNED = {"learned_angles": True, "learned_basis": True}


def type2_a_head() -> PositionalEncoding:
    """Type 2 with angles of its own in each head."""
    encode = encoding("type2", D, heads=KEY_HEADS, **LEARNED)
    with torch.no_grad():
        dict(encode.named_buffers())["matrix.angles.start"][0].mul_(0.7)
    return encode


def pope() -> PositionalEncoding:
    """PoPE with phases of keys other than 0, where they start."""
    encode = encoding("pope", D, learned_angles=True)
    torch.nn.init.normal_(encode.matrix.angles.delta)  # pyright: ignore[reportAttributeAccessIssue]
    return encode


ENCODINGS: dict[str, Callable[[], PositionalEncoding]] = {
    "type1": lambda: encoding("type1", D, **LEARNED),
    "type2": lambda: encoding("type2", D, **LEARNED),
    "type3": lambda: encoding("type3", D, **LEARNED),
    "rope": lambda: encoding("rope", D),
    "rope-half": lambda: encoding("rope-half", D),
    "half-rotated": lambda: encoding("half-rotated", D),
    "none": lambda: encoding("none", D),
    "cosformer": lambda: encoding("cosformer", D, length=32),
    "per": lambda: encoding("per", D, heads=KEY_HEADS),
    "spe": lambda: encoding("spe", D, heads=KEY_HEADS, realizations=7),
    "fourier*unitary": lambda: encoding("fourier*unitary", D, learned_angles=True),
    "type2 a head": type2_a_head,
    "pope": pope,
}
NORMALIZERS = ("plain", "encoded", "output", "output-rms", "output-head")
DECAYS: dict[str, list[float] | None] = {"none": None, "spread": spread_decay(KEY_HEADS), "explicit": [0.5, 0.9]}
LEARNED_DECAYS = ("learned", "gated")


class Choice(NamedTuple):
    encoding: str
    normalizer: str = "plain"
    decay: str = "none"

    def build(self, summation: Any = "causal", dtype: torch.dtype = torch.float64, **changes: Any) -> LinearAttention:
        sizes = {"key_heads": KEY_HEADS, "head_dim": D, "value_dim": E} | changes
        torch.manual_seed(0)
        layer = LinearAttention(
            WIDTH,
            HEADS,
            ENCODINGS[self.encoding](),
            normalizer=self.normalizer,
            summation=summation,
            decay=self.decay if self.decay in LEARNED_DECAYS else DECAYS[self.decay],
            **sizes,
        )
        if self.decay == "gated":
            torch.nn.init.normal_(layer.decay.weight)  # it starts at 0: every token would have the same decay
        return layer.to(dtype).eval()

    def __str__(self) -> str:
        return "-".join(self)


def allowed(choice: Choice) -> bool:
    return choice.encoding != "per" or choice.decay == "none"  # PER brings its own decay


# A sum depends on the normaliser through the features of its Δ alone: plain, encoded, or none. The other normalisers
# without a Δ, and a decay given by numbers, are with some of the encodings in SOME.
DELTAS, WITH_OR_WITHOUT = ("plain", "encoded", "output"), ("none", "spread")
GATED = tuple(itertools.starmap(Choice, itertools.product(("type2",), ("plain", "output"), LEARNED_DECAYS)))
EACH = filter(allowed, itertools.starmap(Choice, itertools.product(ENCODINGS, DELTAS, WITH_OR_WITHOUT)))
# Every encoding once, and every normaliser and decay with some of them: for what costs too much to ask of all
SOME = (
    *(
        choice
        for i, name in enumerate(ENCODINGS)
        if allowed(choice := Choice(name, NORMALIZERS[i % 5], "none" if name == "per" else list(DECAYS)[i % 3]))
    ),
    *GATED[:2],
)
CHOICES = tuple(dict.fromkeys((*EACH, *SOME, *GATED)))


def token_dependent(kind: Callable[..., Any], encoding: str = "type2", **changes: Any) -> Any:
    """A layer away from where learning starts, so that its gates and steps differ from token to token."""
    torch.manual_seed(0)
    layer = kind(WIDTH, HEADS, encoding, key_heads=KEY_HEADS, **changes).double()
    with torch.no_grad():
        for i, weight in enumerate(layer.parameters()):
            weight += 0.3 * features(*weight.shape, seed=i)
    return layer

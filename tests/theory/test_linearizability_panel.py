"""Ideas whose answer is known, linearizable or not, and what linearizability says of each.

A number W(t-s) is linearizable if and only if it is a finite sum of polynomials times exponentials, p(s) λ^s: periodic
functions and sums of cosines are, and so are polynomials times cosines; what has a window, a kink, or a continuous
spectrum is not. For t ≥ s alone a kink at 0 does no harm.
"""

import math

import pytest
import torch
from scipy.special import j0

from lrpe import linearizability

_generator = torch.Generator().manual_seed(0)
TABLE = torch.randn(4097, generator=_generator, dtype=torch.float64).tolist()
FREQUENCIES = (math.pi * torch.rand(125, generator=_generator, dtype=torch.float64)).tolist()


def rotation(alpha, dtype=torch.float64, angles=torch.float64):
    """A rotation by αs, with angles formed in one dtype and values rounded to another."""

    def W(s):
        angle = (torch.tensor(s, dtype=angles) * torch.tensor(alpha, dtype=angles)).double()
        turn = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
        return turn.to(dtype)

    return W


def sinc(band):
    return lambda s: math.sin(band * s) / (band * s) if s else 1.0


def gaussian(sigma):
    return lambda s: math.exp(-0.5 * (s / sigma) ** 2)


def rounded(W, dtype):
    return lambda s: torch.tensor(W(s), dtype=torch.float64).to(dtype)


DEFINITION = {
    "1": lambda s: 1.0,
    "(-1)^s": lambda s: (-1) ** s,
    "a rotation": rotation(1.0),
    "a rotation in float32": rotation(1.0, torch.float32),
    "a rotation in float32, angles too": rotation(0.7, torch.float32, torch.float32),
    "a rotation in bfloat16": rotation(1.0, torch.bfloat16),
    "a rotation in float16": rotation(0.3, torch.float16),
}
ONE_FACTOR = {
    "cos 0.3s": lambda s: math.cos(0.3 * s),
    "cos 1e-6 s": lambda s: math.cos(1e-6 * s),
    "two cosines close together": lambda s: math.cos(s) + math.cos(1.0001 * s),
    "125 cosines": lambda s: sum(math.cos(s * a / 40) for a in range(1, 126)) / 125,
    "125 cosines of random frequencies": lambda s: sum(math.cos(s * a) for a in FREQUENCIES) / 125,
    "125 cosines in a narrow band": lambda s: sum(math.cos(s * a * 8e-4) for a in range(125)) / 125,
    "a cosine in bfloat16": rounded(lambda s: math.cos(0.3 * s), torch.bfloat16),
    "4 cosines in bfloat16": rounded(lambda s: sum(math.cos(a * s) for a in (0.3, 0.7, 1.1, 2.0)) / 4, torch.bfloat16),
}
TWO_FACTORS = {
    "sin 0.3s": lambda s: math.sin(0.3 * s),
    "0.9^s": lambda s: 0.9**s,
    "0.5^s, which overflows": lambda s: 0.5**s,
    "0.9^s + 1": lambda s: 0.9**s + 1,
    "0.9^s cos 0.2s": lambda s: 0.9**s * math.cos(0.2 * s),
    "s": lambda s: s,
    "s^2": lambda s: s * s,
    "s^5": lambda s: s**5,
    "s cos 0.3s": lambda s: s * math.cos(0.3 * s),
    "a table of period 7": lambda s: TABLE[s % 7],
    "a sawtooth of period 50": lambda s: (s % 50) / 50,
    "a table of period 300": lambda s: TABLE[s % 300],
}
NONE = {
    "0.9^|s|": lambda s: 0.9 ** abs(s),
    "0.9999^|s|": lambda s: 0.9999 ** abs(s),
    "0.9^|s| in bfloat16": rounded(lambda s: 0.9 ** abs(s), torch.bfloat16),
    "exp(-s²/800)": lambda s: math.exp(-s * s / 800),
    "a Gaussian, σ = 3": gaussian(3),
    "a Gaussian, σ = 100": gaussian(100),
    "a Gaussian, σ = 1000": gaussian(1000),
    "a Gaussian, σ = 10^5": gaussian(1e5),
    "a Gaussian in bfloat16": rounded(gaussian(20), torch.bfloat16),
    "sinc 0.1s": sinc(0.1),
    "sinc 0.01s": sinc(0.01),
    "a chirp": lambda s: math.cos(1e-4 * s * s),
    "a slow chirp": lambda s: math.cos(1e-6 * s * s),
    "a slower chirp": lambda s: math.cos(1e-8 * s * s),
    "a window of 10": lambda s: float(abs(s) < 10),
    "a window of 1500": lambda s: float(abs(s) < 1500),
    "ALiBi, -|s|/2": lambda s: -0.5 * abs(s),
    "ALiBi in float32": rounded(lambda s: -0.3 * abs(s), torch.float32),
    "-log(1 + |s|)": lambda s: -math.log(1 + abs(s)),
    "1/(1 + |s|)": lambda s: 1 / (1 + abs(s)),
    "1/(1 + (s/100)²)": lambda s: 1 / (1 + (s / 100) ** 2),
    "the Bessel function J0(0.3s)": lambda s: float(j0(0.3 * s)),
    "the Bessel function J0(0.01s)": lambda s: float(j0(0.01 * s)),
    "a random table": lambda s: TABLE[s + 2048] if s >= -2048 else TABLE[4097],
    "a random table of 511 offsets": lambda s: TABLE[:511][s + 255],
    "a table clipped at 50": lambda s: TABLE[max(-50, min(50, s))],
    "1 at 0": lambda s: float(s == 0),
    "a cosine, and 1 more at 0": lambda s: math.cos(s) + (s == 0),
    "the sign of s": lambda s: (s > 0) - (s < 0),
    "a cosine under a Gaussian": lambda s: math.cos(0.3 * s) * gaussian(100)(s),
}
CANNOT_TELL = {
    "a Gaussian, σ = 10^6, within 2·10^6": gaussian(1e6),
    "ALiBi in bfloat16": rounded(lambda s: -0.3 * abs(s), torch.bfloat16),
    "a table of period 700": lambda s: TABLE[s % 700],
    "a window of 250": lambda s: float(abs(s) < 250),  # 13 of 256, then 999 of 1024 positions: it may end there
}
PANEL = [
    pytest.param(W, verdict, id=name)
    for ideas, verdict in (
        (DEFINITION, "definition"),
        (ONE_FACTOR, "one factor"),
        (TWO_FACTORS, "two factors"),
        (NONE, "none"),
        (CANNOT_TELL, "cannot tell"),
    )
    for name, W in ideas.items()
]


@pytest.mark.parametrize(("W", "verdict"), PANEL)
def test_every_idea_gets_the_verdict_that_is_known(W, verdict):
    measured = linearizability(W)
    assert measured.verdict == verdict, str(measured)
    assert bool(measured) == (verdict not in ("none", "cannot tell"))


CAUSAL = {
    "definition": DEFINITION["a rotation"],
    "one factor": ONE_FACTOR["cos 0.3s"],
    "two factors, as a decay": NONE["0.9^|s|"],
    "two factors, as a decay in bfloat16": NONE["0.9^|s| in bfloat16"],
    "two factors, as a bias that falls": NONE["ALiBi, -|s|/2"],
    "two factors, as polynomials are": TWO_FACTORS["s^2"],
    "two factors, as periods are": TWO_FACTORS["a table of period 7"],
    "two factors, of many close frequencies": lambda s: 0.999**s * sum(math.cos(a * s) for a in FREQUENCIES[:40]),
    "none, as a window": NONE["a window of 10"],
    "none, as a clipped table": NONE["a table clipped at 50"],
    "none, as a number on the spot": NONE["a cosine, and 1 more at 0"],
    "none, as a chirp": NONE["a chirp"],
    "none, as a random table": NONE["a random table"],
    "cannot tell, as a Gaussian": NONE["exp(-s²/800)"],
    "cannot tell, as a narrow Gaussian": NONE["a Gaussian, σ = 3"],
    "cannot tell, as a logarithm": NONE["-log(1 + |s|)"],
    "cannot tell, as a wide window": NONE["a window of 1500"],
}


@pytest.mark.parametrize("expected", CAUSAL)
def test_for_t_from_s_on_every_idea_gets_the_verdict_that_is_known(expected):
    measured = linearizability(CAUSAL[expected], causal=True)
    assert measured.causal
    assert measured.verdict == expected.split(",")[0], str(measured)


def test_causal_asks_for_no_negative_offset():
    assert linearizability([0.9**s for s in range(600)].__getitem__, causal=True).verdict == "two factors"

    def W(s):
        assert s >= 0
        return 0.9**s

    assert linearizability(W, causal=True)


@pytest.mark.parametrize(
    ("W", "causal", "words"),
    [
        (NONE["0.9^|s|"], False, ["the rank grows", "512 of 512", "For t ≥ s alone it is 1", "causal=True"]),
        (NONE["0.9^|s|"], True, ["for t ≥ s", "height 1", "a sum over all s and t cannot"]),
        (NONE["a window of 10"], True, ["a state of height 10", "window"]),
        (NONE["a window of 10"], False, ["the rank grows"]),
        (CANNOT_TELL["a table of period 700"], False, ["neither settle", "nor grow"]),
        (ONE_FACTOR["cos 0.3s"], False, ["one M of height 2"]),
        (TWO_FACTORS["s^2"], False, ["height 3"]),
    ],
)
def test_a_sentence_explains_the_verdict(W, causal, words):
    measured = linearizability(W, causal=causal)
    assert all(word in measured.reason for word in words), measured.reason
    assert measured.reason in str(measured)


def test_the_report_says_how_far_it_looked():
    assert linearizability(ONE_FACTOR["cos 0.3s"]).reach == 127 * 4096
    measured = linearizability(NONE["a random table of 511 offsets"])
    assert measured.reach == 255
    assert "|t-s| ≤ 255" in str(measured)

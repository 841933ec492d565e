"""Random sums for the contract of engines: causal or not, with any lengths, grouping, decay, Δ, state and strides."""

import copy
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import lrpe
from lrpe.attention.description import Unencoded
from lrpe.attention.feature_map import FEATURE_MAPS
from lrpe.attention.sums.problem import FORGET, Problem, Sums, naive_sums
from tests.attention.engines import interpreter

LENGTHS = [1, 2, 31, 32, 33, 64, 70]
DECAYS = [None, "one", "strong", "token", "borders"]


@st.composite
def problems(draw) -> Problem:
    """Draw a problem in float32 whose features are given."""
    sizes = _draw_sizes(draw)
    make, batch, heads, key_heads, n, d, e = sizes
    causal, decay = draw(st.booleans()), draw_decay(draw, batch, key_heads, n)
    m = n if causal or decay is not None else draw(st.sampled_from(LENGTHS))  # cross-attention has neither
    q, k, v = make(batch, heads, n, d), make(batch, key_heads, m, d), make(batch, key_heads, m, e)
    delta, width = draw(st.sampled_from([None, "scores", "given"])), draw(st.sampled_from([1, 4, 9]))
    features = {
        None: (None, None),
        "scores": (q, k),
        "given": (make(batch, heads, n, width), make(batch, key_heads, m, width)),
    }[delta]
    S, z = _draw_state(draw, sizes, {None: None, "scores": d, "given": width}[delta]) if causal else (None, None)
    return Problem(q, k, v, *features, decay, S, z, causal)


@st.composite
def unencoded_problems(draw) -> Unencoded:
    """Draw a problem in float32 whose features are not computed yet."""
    sizes = _draw_sizes(draw)
    make, batch, heads, key_heads, n, d, e = sizes
    d += d % 2
    basis, heads_of_angles = (
        draw(st.sampled_from(["identity", "householder"])),
        draw(st.sampled_from([None, key_heads])),
    )
    matrix, rotated = draw(st.sampled_from(["orthogonal", "unitary", "permutation"])), None
    options: dict[str, Any] = (
        {"reflections": draw(st.sampled_from([1, 3])) if d > 3 else 1} if basis != "identity" else {}
    )
    if matrix == "orthogonal":
        options["rotated"] = rotated = draw(st.sampled_from([0, d - d // 4 * 2, d]))
    encoding = lrpe.encoding(f"{basis}*{matrix}", d, heads=heads_of_angles, seed=1, **options)
    table = encoding.table(torch.arange(n)[None])
    V, U = (x.detach().clone() for x in table.basis) if table.basis else (None, None)
    phase, alpha, turn = _draw_turns(draw, encoding, table, rotated, (batch, key_heads, n))
    mask = torch.rand(batch, n) < 0.7 if draw(st.booleans()) else None
    delta = draw(st.sampled_from([None, "plain", "encoded"]))
    phi = FEATURE_MAPS[draw(st.sampled_from(["elu+1", "relu", "relu+1e-3", "softplus", "silu", "identity"]))](d)
    if delta is not None:  # a Δ near 0 would measure the division, not the engine
        phi = FEATURE_MAPS[draw(st.sampled_from(["elu+1", "softplus"]))](d)
        positive = basis == "identity" and (rotated == 0 or matrix == "permutation")
        delta = delta if positive else "plain"
    q, k, v = make(batch, heads, n, d), make(batch, key_heads, n, d), make(batch, key_heads, n, e)
    causal, decay = draw(st.booleans()), draw_decay(draw, batch, key_heads, n)
    if mask is not None and delta is not None and decay is not None and decay.shape == (1, 1, 1):
        mask = None  # after padding, a Δ of a strong decay has no digits in float32
    widths = (make, batch, heads, key_heads, n, encoding.feature_dim, e)
    S, z = (
        _draw_state(draw, widths, {None: None, "plain": d, "encoded": encoding.feature_dim}[delta])
        if causal
        else (None, None)
    )
    z = None if z is None else z.abs()
    return Unencoded(q, k, v, phi, encoding, V, U, phase, alpha, turn, mask, delta, decay, S, z, causal)


def _draw_turns(draw, encoding, table, rotated, shape):
    """Return p and α of Type 2, at positions or at phases of tokens, or the table of another Λ."""
    if rotated is None:
        return None, None, table.matrix[0].detach().clone()
    if rotated == 0:
        return None, None, None
    batch, key_heads, n = shape
    phase = torch.arange(n, dtype=torch.float64)[None, None, :, None]
    if draw(st.booleans()):
        one_per = draw(st.sampled_from([(1, 1, 1), (batch, key_heads, 1), (batch, key_heads, rotated // 2)]))
        phase = (0.5 + torch.rand(*one_per[:2], n, one_per[2], dtype=torch.float64)).cumsum(2)
    return phase, encoding.matrix.angles.scaled().detach().clone(), None


def _draw_sizes(draw):
    torch.manual_seed(draw(st.integers(0, 2**31)))
    swapped = draw(st.booleans())

    def make(batch: int, heads: int, n: int, width: int) -> Tensor:
        """Rows with a gap between them, as a slice of a larger tensor has; heads before or after tokens."""
        shape = (batch, n, heads, width + 3) if swapped else (batch, heads, n, width + 3)
        x = torch.randn(shape)[..., :width]
        return x.transpose(1, 2) if swapped else x

    # Triton's interpreter runs one program after another for each row, head and chunk, and each border begins a chunk.
    # test_fla.py has two rows in every example, and borders every three tokens in one.
    key_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 2 if interpreter.RUNS else 3))
    # With and without padding, in registers or not; rows of 128 differ from those of 64 in the native engine alone.
    widths = st.sampled_from([1, 3, 4, 16, 20, 64] if interpreter.RUNS else [1, 3, 4, 16, 20, 64, 128])
    return (
        make,
        1 if interpreter.RUNS else draw(st.integers(1, 2)),
        key_heads * group,
        key_heads,
        draw(st.sampled_from(LENGTHS)),
        *(draw(widths) for _ in range(2)),
    )


def _draw_state(draw, sizes, delta_width: int | None) -> tuple[Tensor | None, Tensor | None]:
    _, batch, _, key_heads, _, d, e = sizes
    if not draw(st.booleans()):
        return None, None
    S = torch.randn(batch, key_heads, e, d).mT
    return S, None if delta_width is None else torch.randn(batch, key_heads, delta_width)


def draw_decay(draw, batch: int, key_heads: int, n: int) -> Tensor | None:
    kind = draw(st.sampled_from(DECAYS))
    if kind is None:
        return None
    if kind == "one":
        return -torch.rand(1, key_heads, 1, dtype=torch.float64)
    if kind == "strong":
        return torch.full((1, 1, 1), 1e-6, dtype=torch.float64).log()
    log_decay, share = -torch.rand(batch, key_heads, n), 0.05 if interpreter.RUNS else 0.2
    return log_decay if kind == "token" else torch.where(torch.rand(batch, 1, n) < share, FORGET, log_decay)


def in_float64(problem: Any) -> Any:
    """The same problem in float64, with gradients of its own; Δ's features stay those of the scores if they were."""
    changed = {name: x.detach().double() for name, x in problem._asdict().items() if _is_real(x)}
    if isinstance(problem, Problem) and problem.sums_scores:
        changed |= {"delta_q": changed["q"], "delta_k": changed["k"]}
    return problem._replace(**changed)


def on_device(problem: Any, device: str) -> Any:
    """The same problem on a device."""
    if device == "cpu":
        return problem
    moved = {name: x.to(device) for name, x in problem._asdict().items() if isinstance(x, Tensor)}
    if isinstance(problem, Unencoded):
        moved["encoding"] = copy.deepcopy(problem.encoding).to(device)
    elif problem.sums_scores:
        moved |= {"delta_q": moved["q"], "delta_k": moved["k"]}
    return problem._replace(**moved)


def _is_real(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def solve(problem: Any, engine: Any) -> tuple[Sums, dict[str, Tensor]]:
    """Return the sums and the gradient of every tensor, for random gradients of the sums."""
    inputs = {name: x.requires_grad_() for name, x in problem._asdict().items() if _is_real(x)}
    inputs.pop("delta_q" if isinstance(problem, Problem) and problem.sums_scores else "", None)
    inputs.pop("delta_k" if isinstance(problem, Problem) and problem.sums_scores else "", None)
    sums = engine(problem)
    parts = [x for x in (sums.out, sums.S, sums.z) if x is not None]
    if isinstance(problem, Problem) and sums.delta is not None:
        parts.append(sums.delta)
    generator = torch.Generator().manual_seed(0)
    loss = sum((x * torch.randn(x.shape, generator=generator).to(x)).sum() for x in parts)
    grads = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
    zeros = {name: torch.zeros_like(x) for name, x in inputs.items()}
    return sums, {name: zeros[name] if g is None else g for name, g in zip(inputs, grads, strict=True)}


def specification(problem: Any) -> Sums:
    """The n × n sums, divided by Δ if the problem is unencoded."""
    if isinstance(problem, Problem):
        return naive_sums(problem)
    sums = naive_sums(problem.encode())
    if sums.delta is None:
        return sums
    return sums._replace(out=torch.where(sums.delta == 0, 0, sums.out / torch.where(sums.delta == 0, 1, sums.delta)))

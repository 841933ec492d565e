"""``lrpe bench encoding``: the cost of encoding a tensor, in copies of that tensor."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lrpe.encodings.basis import Basis, Householder, OddEven
from lrpe.encodings.family import encoding
from lrpe.encodings.matrix_basis import Cosine
from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement
from lrpe.lab.benchmarks.device import place
from lrpe.lab.benchmarks.lines import Line, line_from
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.peers import Peer, rotary_peers
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.timing import Ratio, Timed, interleave, warn_if_busy
from lrpe.lab.stamp import stamp
from lrpe.positions import sequence

Shape = tuple[int, int, int, int]  # batch, heads, n, head_dim
_Apply = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """A shape and the rotation's goals there, in copies: forward, and forward + backward."""

    shape: Shape
    forward: float
    both: float


_CASES = [Case((8, 8, 512, 64), 2.2, 2.2), Case((1, 8, 8192, 64), 1.4, 1.5)]
QUICK = [Case((2, 2, 32, 16), 2.2, 2.2), Case((1, 2, 128, 16), 1.4, 1.5)]
_JUDGED = "Λ, Type 2"  # the rotation is the row with goals


@dataclass(frozen=True)
class _Contender:
    """A function of x to time, and its parameters; ``apply`` is None if a peer is not installed."""

    name: str
    apply: _Apply | None
    learned: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Row:
    """The cost of one contender: ``both`` is None if it has no backward, ``forward`` too if it is not installed."""

    name: str
    forward: Ratio | None
    both: Ratio | None


@dataclass(frozen=True)
class _ShapeResult:
    shape: Shape
    rows: list[Row]
    agreements: list[Agreement]
    processor_share: float


@dataclass(frozen=True)
class EncodingResult(Measurement):
    benchmark = "encoding"
    shapes: list[_ShapeResult]

    def title(self) -> list[str]:
        return [
            "Encoding a float32 tensor: forward in copies of it, forward + backward in units of two copies.",
            f"Medians of {self.rounds} interleaved rounds, quartiles in brackets.",
            "Tables are precomputed unless a row says otherwise.",
            "Type 1 writes twice as many features as it reads, so it costs at least 1.5.",
        ]

    def tables(self) -> list[str]:
        return [*map(shape_table, self.shapes), *super().tables()]

    def remarks(self) -> list[str]:
        return warn_if_busy(min(shape.processor_share for shape in self.shapes))


def measure(quick: bool = False, rounds: int | None = None) -> EncodingResult:
    """Time every contender at every shape; ``quick`` uses tiny shapes, to check that everything runs."""
    rounds = rounds or (2 if quick else 20)
    marks = stamp("transformers", "rotary-embedding-torch")
    cases = QUICK if quick else _CASES
    shapes = [measure_case(case, rounds) for case in cases]
    lines = [line for case, result in zip(cases, shapes, strict=True) for line in judged(case, result)]
    return EncodingResult(quick, rounds, read_settings(), marks, lines, shapes)


def measure_case(case: Case, rounds: int) -> _ShapeResult:
    print(f"Timing {case.shape}, {rounds} rounds.", file=sys.stderr, flush=True)
    n, dim = case.shape[-2:]
    x = place(torch.randn(case.shape, generator=torch.Generator().manual_seed(0)))
    peers = rotary_peers(n, dim)
    agreements = [_check_peer(peer, x) for peer in peers if peer.rotate is not None]
    contenders = [*_own_contenders(n, dim), *(_Contender(peer.name, peer.rotate) for peer in peers)]
    tasks = [task for contender in contenders for task in _tasks_of(contender, x)] + _table_tasks(n, dim)
    copy = torch.empty_like(x)
    timing = interleave(tasks, lambda: copy.copy_(x), rounds)
    ratios = timing.ratios
    names = [contender.name for contender in contenders] + [task.name for task in _table_tasks(n, dim)]
    rows = [Row(name, ratios.get(name), ratios.get(f"{name} + backward")) for name in names]
    return _ShapeResult(case.shape, rows, agreements, timing.processor_share)


def judged(case: Case, result: _ShapeResult) -> list[Line]:
    (row,) = [row for row in result.rows if row.name == _JUDGED]
    assert row.forward is not None
    assert row.both is not None
    at, share = "×".join(map(str, case.shape)), result.processor_share
    return [
        line_from(row.forward, f"{row.name}, forward ÷ a copy", at, case.forward, share),
        line_from(row.both, f"{row.name}, forward + backward ÷ two copies", at, case.both, share),
    ]


def _own_contenders(n: int, dim: int) -> list[_Contender]:
    learned = place(encoding("rope", dim, learned_angles=True))
    return [
        _Contender("Λ, Type 1", _with_table(encoding("identity*unitary", dim), n)),
        _Contender("Λ, Type 2", _with_table(encoding("identity*orthogonal", dim), n)),
        _Contender("Λ, Type 2, learned α, table in the call", learned, tuple(learned.parameters())),
        _Contender("Λ, Type 3", _with_table(encoding("identity*permutation", dim), n)),
        _Contender("P, Householder", _basis_with_table(Householder(dim))),
        _Contender("P, odd-even", _basis_with_table(OddEven(dim))),
        _Contender("P, cosine", _basis_with_table(Cosine(dim))),
        _Contender("Λ P, type1", _with_table(encoding("type1", dim, learned_angles=False), n)),
        _Contender("Λ P, type2", _with_table(encoding("type2", dim, learned_angles=False), n)),
        _Contender("Λ P, type3", _with_table(encoding("type3", dim), n)),
    ]


def _with_table(encode: Any, n: int) -> _Apply:
    encode = place(encode)
    table = encode.table(place(sequence(n)))
    return lambda x: encode(x, table=table)


def _basis_with_table(basis: Basis) -> _Apply:
    table = place(basis).table()
    return lambda x: basis.transform(x, table)


def _tasks_of(contender: _Contender, x: Tensor) -> list[Timed]:
    """Return the forward pass, in copies, and forward + backward, in units of two copies."""
    apply = contender.apply
    if apply is None:
        return []
    leaf = x.clone().requires_grad_()
    wanted = (leaf, *contender.learned)
    g = torch.randn_like(apply(x))

    def both():
        torch.autograd.grad(apply(leaf), wanted, g)

    return [
        Timed(contender.name, torch.no_grad()(lambda: apply(x))),
        Timed(f"{contender.name} + backward", both, units=2),
    ]


def _table_tasks(n: int, dim: int) -> list[Timed]:
    """Return the computation of the table of n positions, which all queries and keys share."""
    s = place(sequence(n))
    kinds = {"Type 1": "identity*unitary", "Type 2": "identity*orthogonal", "Type 3": "identity*permutation"}
    makers = {kind: place(encoding(name, dim)) for kind, name in kinds.items()}
    return [Timed(f"table of {n}, {kind}", lambda maker=maker: maker.table(s)) for kind, maker in makers.items()]


def _check_peer(peer: Peer, x: Tensor) -> Agreement:
    """Check that a peer gives the features of our rope, or the scores of our rope-half."""
    assert peer.rotate is not None
    rotate, n, dim = peer.rotate, x.shape[-2], x.shape[-1]
    if peer.equal == "features":
        ours = "rope"
        sides = _with_table(encoding(ours, dim), n), rotate
    else:
        ours = "rope-half"
        sides = _scores_of(_with_table(encoding(ours, dim), n)), _scores_of(rotate)
    return check_agreement((ours, peer.name), sides, x, peer.tolerance, peer.equal)


def _scores_of(apply: _Apply) -> _Apply:
    """Return the scores between about 64 evenly spaced rows; all n × n would not fit in memory."""

    def scores(x: Tensor) -> Tensor:
        some = apply(x)[..., :: max(x.shape[-2] // 64, 1), :]
        return some @ some.mT

    return scores


def shape_table(result: _ShapeResult) -> str:
    rows = [[row.name, show(row, row.forward), show(row, row.both)] for row in result.rows]
    lines = [in_columns([str(result.shape), "forward", "forward + backward"], rows)]
    if any(row.forward is None for row in result.rows):
        lines.append("missing: not installed. Run pip install 'lrpe[bench]'.")
    return "\n".join(lines)


def show(row: Row, figure: Ratio | None) -> str:
    if row.forward is None:
        return "missing"
    return "–" if figure is None else str(figure)

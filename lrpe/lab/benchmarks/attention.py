"""``lrpe bench attention``: what users run, whole, beside SDPA, other linear attention and the limit of the machine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from lrpe.attention.engines.choice import engine_used, status
from lrpe.attention.sums.problem import Problem, naive_sums
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement, largest_difference
from lrpe.lab.benchmarks.device import on_cuda
from lrpe.lab.benchmarks.limit import Shape, bidirectional_flops, causal_flops
from lrpe.lab.benchmarks.lines import Line, collect, judge, line_from, missing_line
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.memory import peak_allocated
from lrpe.lab.benchmarks.peers import SumPeer, causal_peers, softmax_causal, softmax_everywhere, softmax_written_out
from lrpe.lab.benchmarks.process import can_use_threads, read_settings, threads_in_use
from lrpe.lab.benchmarks.sides import ABOUT, BIDIRECTIONAL, DEFAULT, OTHERS, check_sides, draw, make_side
from lrpe.lab.benchmarks.stages import LIMIT, SideTime, Stage, describe_shape, run_stage, time_tables
from lrpe.lab.benchmarks.step import check_steps, measure_steps
from lrpe.lab.benchmarks.timing import warn_if_busy
from lrpe.lab.benchmarks.turns import take_turns
from lrpe.lab.stamp import stamp

_TORCH = "default, torch engine"
_DEFAULT_ROW = "causal forward + backward, default"
_LIMIT_GOAL, _MEMORY_GOAL, _ENGINE_GOAL, _THREADS_GOAL = 1.6, 4.5, 0.27, 0.6
_TOKEN_GOALS = {"gated decay": 1.1, "selective steps": 1.2}  # ÷ the default, whose decay and steps are fixed
_TOLERANCE = 1e-4  # relative, for float32 sums of thousands of terms


@dataclass(frozen=True)
class Sizes:
    """The shapes (batch, heads, n, d), and the goals of our time ÷ SDPA's."""

    causal: dict[Shape, float]
    long: Shape  # without SDPA, which would take minutes
    bidirectional: dict[Shape, float]
    contexts: tuple[int, ...]  # of a decoding step
    checked: Shape


FULL = Sizes(
    causal={(4, 8, 512, 64): 0.21, (1, 8, 2048, 64): 0.09, (1, 8, 8192, 64): 0.025},
    long=(1, 8, 32768, 64),
    bidirectional={(4, 8, 512, 64): 0.10, (1, 8, 2048, 64): 0.028},
    contexts=(8192, 32768),
    checked=(1, 8, 512, 64),
)
QUICK = Sizes(
    causal={(1, 2, 64, 16): 0.21, (1, 2, 128, 16): 0.09},
    long=(1, 2, 256, 16),
    bidirectional={(1, 2, 64, 16): 0.10},
    contexts=(64,),
    checked=(1, 2, 128, 16),
)


@dataclass(frozen=True)
class AttentionResult(Measurement):
    benchmark = "attention"
    agreements: list[Agreement]
    times: list[SideTime]
    gemm_rate: float  # flops per second of a large matrix product

    def title(self) -> list[str]:
        return [
            "Attention in float32 from q, k and v on, at batch × heads × n × d; lower is better.",
            f"Medians of {self.rounds} interleaved rounds, quartiles in brackets.",
        ]

    def tables(self) -> list[str]:
        return [*time_tables(self.times), *super().tables()]

    def remarks(self) -> list[str]:
        return [
            "Before timing, all implementations gave the right outputs and gradients to a relative "
            f"{largest_difference(self.agreements):.0e}.",
            *ABOUT,
            *_ABOUT,
            f"The matrix product ran at {self.gemm_rate / 1e9:.3g} GFLOP/s.",
            *absent(self.lines),
            *_missing_engines(),
            *warn_if_busy(min(line.processor_share for line in self.lines)),
        ]


_ABOUT = (
    "SDPA is softmax attention, another function for the same task. Peers marked 'sum alone' have no φ, encoding,",
    "decay and Δ. The limit is the flops of our sum at the rate of a large matrix product (GEMM) in the same process.",
    "Extra memory is everything that torch allocates beyond q, k, v and the gradient of the output; the output and the",
    "gradients of q, k and v are four of the tensors. The native kernel's own scratch memory, less than a megabyte per",
    "thread, is not counted.",
    "Two threads ÷ one compares wall-clock times, and means something on an idle machine only.",
)


def absent(lines: Sequence[Line]) -> list[str]:
    """Say which peers are not installed and how to install them."""
    names = sorted({line.row.partition(" ÷ ")[2] for line in lines if line.verdict == "missing"} - {"torch engine"})
    if not names:
        return []
    return [
        f"missing: {' and '.join(names)}: not installed. fla-core comes with pip install 'lrpe[bench]'; "
        "pytorch-fast-transformers must be built from its source."
    ]


def _missing_engines() -> list[str]:
    return [f"The {name} engine is missing: {reason}." for name, reason in status().items() if reason != "ready"]


def measure(quick: bool = False, rounds: int | None = None) -> AttentionResult:
    """Check every implementation against its specification, then time them; ``quick`` uses tiny shapes."""
    rounds = rounds or (2 if quick else 15)
    sizes = QUICK if quick else FULL
    marks, peers = stamp("fla-core", "pytorch-fast-transformers"), causal_peers()
    agreements = [*check_sides(sizes.checked), *check_peers(sizes.checked, peers), *check_steps(sizes.checked)]
    stages: list[Stage] = []
    lines = collect(measure_lines(sizes, peers, rounds, stages.append))
    rows = [line.row for line in lines]
    lines.sort(key=lambda line: rows.index(line.row))  # the shapes of a row below each other
    times, rate = [time for stage in stages for time in stage.times()], median(stage.gemm_rate for stage in stages)
    return AttentionResult(quick, rounds, read_settings(), marks, lines, agreements, times, rate)


def check_peers(shape: Shape, peers: Sequence[SumPeer]) -> Iterator[Agreement]:
    """Check the peers' sums against the n × n sum, and SDPA against softmax written out."""
    x = torch.stack(draw(shape))
    for causal, softmax in ((True, softmax_causal), (False, softmax_everywhere)):
        both = (_on_stack(softmax), _on_stack(partial(softmax_written_out, causal=causal)))
        yield check_agreement(("SDPA", "its matrix"), both, x, _TOLERANCE, "softmax")
    for peer in peers:
        if peer.sum is not None:
            both = (_on_stack(peer.sum), _on_stack(_matrix_sum))
            yield check_agreement((peer.name, "the n × n sum"), both, x, _TOLERANCE, "sums")


def _matrix_sum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return naive_sums(Problem(q, k, v)).out


def _on_stack(compute: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a function of q, k and v as one of the tensor that stacks them."""
    return lambda x: compute(*x.unbind(0))


def measure_lines(sizes: Sizes, peers: Sequence[SumPeer], rounds: int, keep: Callable[[Stage], None]) -> Iterator[Line]:
    """Yield the lines; ``keep`` is called with each stage."""
    for shape, goal in sizes.causal.items():
        for backward in (False, True):
            stage = _time_causal(shape, backward, peers, rounds)
            keep(stage)
            yield from _causal_lines(stage, peers, goal)
        yield measure_memory(shape)
    stage = _time_long(sizes.long, rounds)
    keep(stage)
    yield stage.compare("default ÷ flops at GEMM rate", DEFAULT, LIMIT)
    yield _engine_line(stage, goal=None)
    for shape, goal in sizes.bidirectional.items():
        for backward in (False, True):
            stage = _time_bidirectional(shape, backward, rounds)
            keep(stage)
            yield stage.compare("Type 2 ÷ SDPA", BIDIRECTIONAL, "SDPA", goal if backward else None)
            yield stage.compare("Type 2 ÷ flops at GEMM rate", BIDIRECTIONAL, LIMIT)
    yield from measure_steps(next(iter(sizes.causal)), sizes.contexts, rounds)
    yield from measure_threads(next(iter(sizes.causal)), rounds)


def _time_causal(shape: Shape, backward: bool, peers: Sequence[SumPeer], rounds: int) -> Stage:
    sides = {name: make_side(name, shape) for name in (DEFAULT, *OTHERS)}
    if status()[_fast_engine()] == "ready":
        sides[_TORCH] = sides[DEFAULT].by_torch()
    others = {"SDPA": softmax_causal} | {peer.name: peer.sum for peer in peers if peer.sum is not None}
    return run_stage("causal", shape, backward, sides, others, causal_flops, rounds)


def _time_long(shape: Shape, rounds: int) -> Stage:
    """Time the default, forward and backward."""
    sides = {DEFAULT: make_side(DEFAULT, shape)}
    if status()[_fast_engine()] == "ready":
        sides[_TORCH] = sides[DEFAULT].by_torch()
    return run_stage("causal", shape, True, sides, {}, causal_flops, rounds)


def _time_bidirectional(shape: Shape, backward: bool, rounds: int) -> Stage:
    sides = {BIDIRECTIONAL: make_side(BIDIRECTIONAL, shape)}
    return run_stage("bidirectional", shape, backward, sides, {"SDPA": softmax_everywhere}, bidirectional_flops, rounds)


def _causal_lines(stage: Stage, peers: Sequence[SumPeer], goal: float) -> Iterator[Line]:
    """Yield the default ÷ everything else and everything else of ours ÷ the default; forward alone has no goals."""
    judged = stage.backward
    yield stage.compare("default ÷ SDPA", DEFAULT, "SDPA", goal if judged else None)
    yield stage.compare("default ÷ flops at GEMM rate", DEFAULT, LIMIT, _LIMIT_GOAL if judged else None)
    yield _engine_line(stage, _ENGINE_GOAL if judged else None)
    for peer in peers:
        if peer.sum is not None:
            yield stage.compare(f"default ÷ {peer.name}", DEFAULT, peer.name)
        elif judged:
            yield missing_line(f"{_DEFAULT_ROW} ÷ {peer.name}", describe_shape(stage.shape), None)
    for name in OTHERS if judged else ():
        yield stage.compare(f"{name} ÷ default", name, DEFAULT, _TOKEN_GOALS.get(name))


def _fast_engine() -> str:
    return "fla" if on_cuda() else "native"


def _engine_line(stage: Stage, goal: float | None) -> Line:
    row = f"default, {_fast_engine()} engine ÷ torch engine"
    if _TORCH in stage.turns.seconds:
        return stage.compare(row, DEFAULT, _TORCH, goal)
    return missing_line(f"{stage.summation} {stage.passes}, {row}", describe_shape(stage.shape), goal)


def measure_memory(shape: Shape) -> Line:
    """Count the peak of the default, forward and backward, in tensors of q's size."""
    side = make_side(DEFAULT, shape)
    run = side.forward_and_backward()
    tensors = peak_allocated(run) / side.inputs[0].nbytes
    row, verdict = f"{_DEFAULT_ROW}, extra memory in tensors of q's size", judge(tensors, _MEMORY_GOAL)
    return Line(row, describe_shape(shape), _MEMORY_GOAL, verdict, tensors, engine=engine_used(run).engine)


def measure_threads(shape: Shape, rounds: int) -> Iterator[Line]:
    """Yield the default on two threads ÷ on one, if a CPU has two processors and the others were timed on one."""
    if on_cuda() or torch.get_num_threads() != 1 or not can_use_threads(2):
        return
    run = make_side(DEFAULT, shape).forward_and_backward()

    def on_two_threads() -> None:
        with threads_in_use(2):
            run()

    turns = take_turns({"one": run, "two": on_two_threads}, rounds, perf_counter)
    row = f"{_DEFAULT_ROW}, two threads ÷ one (on an idle machine)"
    engine = engine_used(run).engine
    yield line_from(turns.ratio("two", "one"), row, describe_shape(shape), _THREADS_GOAL, engine=engine)

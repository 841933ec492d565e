"""``lrpe bench context``: the memory of a training step on one long row that several processes share."""

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from lrpe.errors import require
from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.device import on_cuda, place
from lrpe.lab.benchmarks.lines import Line, judge
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.memory import peak_resident, resident
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.several import SHARE_GOAL, measure_on
from lrpe.lab.stamp import stamp
from lrpe.lab.training.settings import Optimization
from lrpe.parallel import context, own_part

_VOCABULARY = 256  # bytes
_TOLERANCE = 1e-4  # relative, of the losses in float32


@dataclass(frozen=True)
class Sizes:
    layers: int
    width: int
    heads: int

    def __str__(self) -> str:
        return f"{self.layers} × {self.width}"


@dataclass(frozen=True)
class Step:
    """One training step: bytes per process, above those before the step and in all, and seconds; the worst process."""

    processes: int
    length: int
    bytes: int
    whole: int
    seconds: float
    loss: float

    def cells(self) -> list[str]:
        held = (f"{x / 2**30:.2f}" for x in (self.bytes, self.whole))
        return [f"{self.length:,}", str(self.processes), *held, f"{self.seconds:.1f}", f"{self.loss:.4f}"]


@dataclass(frozen=True)
class _ContextResult(Measurement):
    benchmark = "context"
    sizes: Sizes
    steps: list[Step]

    def title(self) -> list[str]:
        sizes = self.sizes
        model = f"{sizes.layers} layers of width {sizes.width}, {sizes.heads} heads, feed-forward of {4 * sizes.width}"
        return [
            "A training step on one row: forward, cross-entropy, backward, AdamW; float32, gradient checkpointing.",
            f"A causal language model of {model}, a vocabulary of {_VOCABULARY}; random bytes.",
        ]

    def tables(self) -> list[str]:
        header = ["tokens", "processes", "GiB per process", "whole process, GiB", "seconds", "nats per token"]
        compared = super().tables() if self.lines else []  # one process has nothing to be compared with
        return [in_columns(header, [step.cells() for step in self.steps]), *compared]

    def remarks(self) -> list[str]:
        return [
            "Memory is the greatest resident memory of a process during the step, above that before it; freed memory",
            "returns to the system at once, which costs time. The greater of the processes counts.",
            *(["The losses of one process and of several agree, or nothing is printed."] if self.lines else []),
        ]


def measure(
    quick: bool = False,
    rounds: int | None = None,
    processes: int = 2,
    lengths: Sequence[int] = (2**14, 2**15, 2**16),
    layers: int = 4,
    width: int = 256,
) -> _ContextResult:
    """Measure steps of each length on one process and on ``processes``, each in processes of their own."""
    require(not on_cuda(), "device must be cpu: this benchmark starts its own processes, without GPUs.")
    sizes = Sizes(2, 16, 2) if quick else Sizes(layers, width, max(1, width // 64))
    lengths, rounds, marks = ([64] if quick else lengths), rounds or 1, stamp()
    counts = list(dict.fromkeys((1, processes)))
    steps = [step for n in lengths for step in _measure_length(n, counts, sizes, rounds)]
    lines = list(_compare(steps, SHARE_GOAL if processes == 2 else None))
    return _ContextResult(quick, rounds, read_settings(), marks, lines, sizes, steps)


def _measure_length(n: int, counts: Sequence[int], sizes: Sizes, rounds: int) -> list[Step]:
    steps = []
    for count in counts:
        print(f"A step of {n:,} tokens on {count} processes.", file=sys.stderr, flush=True)
        steps.append(_measure_step(count, n, sizes, rounds))
    losses = [step.loss for step in steps]
    require(
        max(losses) - min(losses) <= _TOLERANCE * max(losses),
        f"The losses of {counts} processes on {n} tokens differ: {losses}. Please report this.",
    )
    return steps


def _compare(steps: Sequence[Step], goal: float | None = None) -> Iterator[Line]:
    one = {step.length: step for step in steps if step.processes == 1}
    for step in steps:
        if step.processes > 1:
            share = step.bytes / one[step.length].bytes
            row, at = f"memory per process, of {step.processes} ÷ of 1", f"{step.length:,} tokens"
            yield Line(row, at, goal, judge(share, goal), share)


def _measure_step(count: int, n: int, sizes: Sizes, rounds: int) -> Step:
    """Measure a step on new processes; the one that needs most memory counts."""
    steps = measure_on(count, _measure_here, count, n, sizes, rounds)
    worst = max(steps, key=lambda step: step.bytes)
    return replace(worst, loss=sum(step.loss for step in steps))


def _measure_here(count: int, n: int, sizes: Sizes, rounds: int) -> Step:
    ids = torch.randint(_VOCABULARY, (1, n + 1), generator=torch.Generator().manual_seed(0))
    step = _TrainingStep(count, sizes)
    step(ids[:, :129])  # makes the moments of AdamW, and what libraries make once
    gc.collect()
    before, seconds, held, loss = resident(), [], [], 0.0
    for _ in range(rounds):
        start = perf_counter()
        held.append(peak_resident(lambda: step(ids)) or 0)
        seconds.append(perf_counter() - start)
        loss = loss or step.loss  # of the first one, before the weights differ
    return Step(count, n, min(held), before + min(held), median(seconds), loss)


class _TrainingStep:
    """The user's own loop of docs/tutorials/many-machines.md; ``loss`` is this process's share of the last one."""

    def __init__(self, count: int, sizes: Sizes):
        from lrpe.models import LrpeConfig, LrpeForCausalLM

        torch.manual_seed(0)
        config = LrpeConfig(
            vocab_size=_VOCABULARY,
            hidden_size=sizes.width,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            intermediate_size=4 * sizes.width,
        )
        model = place(LrpeForCausalLM(config)).train()
        model.gradient_checkpointing_enable()
        self.count = count
        self.model: Any = torch.nn.parallel.DistributedDataParallel(model) if count > 1 else model
        self.optimizer, self.loss = Optimization(rate=1e-4).build(model), 0.0

    def __call__(self, ids: Tensor) -> None:
        with context() if self.count > 1 else nullcontext():
            inputs, targets = own_part(ids[:, :-1]), own_part(ids[:, 1:])
            loss = self.model(inputs, targets=targets, use_cache=False).loss.sum() / (ids.shape[1] - 1)
        (loss * self.count).backward()  # the replicas take the mean over processes; the gradient is the sum
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss = loss.item()

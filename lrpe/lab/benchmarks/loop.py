"""``lrpe bench loop``: the training loop's overhead over forward, backward and step, and the time to resume."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from lrpe.lab.benchmarks.device import place
from lrpe.lab.benchmarks.lines import Line, judge, line_from
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.timing import clock, no_garbage_collection, summarise, warn_if_busy
from lrpe.lab.data.text.corpora import load_library
from lrpe.lab.stamp import stamp
from lrpe.lab.tasks.language_modelling import LanguageModelling
from lrpe.lab.training.loop import Loop
from lrpe.lab.training.record import Record
from lrpe.lab.training.settings import Optimization, Training
from lrpe.models.configuration import LrpeConfig

_GOAL, _RESUMING_GOAL = 0.03, 10.0
WARM = 5  # warm-up updates, not counted


@dataclass(frozen=True)
class _Sizes:
    layers: int
    width: int
    heads: int
    batch: int
    length: int

    def __str__(self) -> str:
        return f"{self.layers} × {self.width}, {self.batch} × {self.length} bytes"


_FULL = _Sizes(layers=3, width=128, heads=4, batch=8, length=256)  # the language model of `lrpe table lm --scale small`
QUICK = _Sizes(layers=1, width=16, heads=2, batch=2, length=16)


@dataclass(frozen=True)
class _LoopResult(Measurement):
    benchmark = "loop"
    sizes: _Sizes

    def title(self) -> list[str]:
        return [
            "The training loop's overhead ÷ the time of forward, backward and step, in float32; lower is better.",
            f"A language model of {self.sizes.layers} layers of width {self.sizes.width}, {self.sizes.heads} heads, on "
            f"{self.sizes.batch} × {self.sizes.length} bytes per update.",
            f"Medians of {self.rounds} updates, quartiles in brackets.",
        ]

    def remarks(self) -> list[str]:
        return [
            "The overhead is reading and batching the text, clipping, metrics.jsonl, TensorBoard, and the checks for "
            "divergence.",
            "Resuming is measured from opening the folder to the first batch, including the check of the checkpoint.",
            *warn_if_busy(min(line.processor_share for line in self.lines)),
        ]


def measure(quick: bool = False, rounds: int | None = None) -> _LoopResult:
    """Train for ``rounds`` updates, timing the model's part of each, then resume the run."""
    rounds, sizes = rounds or (3 if quick else 100), QUICK if quick else _FULL
    marks = stamp("transformers")
    with tempfile.TemporaryDirectory() as folder:
        pairs, share = time_updates(build(sizes, rounds + WARM, Path(folder)))
        seconds = _time_resuming(sizes, rounds + WARM, Path(folder))
    lines = [
        line_from(summarise(pairs), "the loop ÷ forward, backward, step", str(sizes), _GOAL, share),
        Line("resuming, in seconds", str(sizes), _RESUMING_GOAL, judge(seconds, _RESUMING_GOAL), seconds),
    ]
    return _LoopResult(quick, rounds, read_settings(), marks, lines, sizes)


def build(sizes: _Sizes, updates: int, folder: Path) -> Loop:
    task = LanguageModelling(load_library(tokenizer="bytes", length=sizes.length))
    torch.manual_seed(0)
    config = LrpeConfig(
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=2 * sizes.width,
        **task.fields(),
    )
    plan = Optimization(updates=updates, batch=sizes.batch, warmup=1)
    training = Training(plan, evaluate_every=updates, evaluation_batches=1)
    record = Record(folder, {})
    record.begin()
    return Loop(task, place(task.model_class(config)), training, record, "loop")


class _Watch:
    """Sums the seconds spent in the functions that it wraps."""

    def __init__(self):
        self.seconds = 0.0

    def on(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            start = clock()
            result = act(*args)
            self.seconds += clock() - start
            return result

        return timed


def time_updates(loop: Loop) -> tuple[list[tuple[float, float]], float]:
    """Return (overhead ÷ model's time, overhead in seconds) per update, and the processor share."""
    model, marks = _Watch(), []
    loop.compute_loss, loop.backward = model.on(loop.compute_loss), model.on(loop.backward)
    loop.optimizer.step = model.on(loop.optimizer.step)
    learn = loop.learn

    def marked(steps: Any) -> Any:
        marks.append((clock(), model.seconds, perf_counter()))
        return learn(steps)

    loop.learn = marked
    with no_garbage_collection():
        loop.run()
    turns = zip(marks[WARM:-1], marks[WARM + 1 :], strict=True)
    spent = [(b[0] - a[0], b[1] - a[1]) for a, b in turns]
    pairs = [((whole - models) / models, whole - models) for whole, models in spent]
    return pairs, (marks[-1][0] - marks[WARM][0]) / (marks[-1][2] - marks[WARM][2])


def _time_resuming(sizes: _Sizes, updates: int, folder: Path) -> float:
    start = perf_counter()
    loop = build(sizes, updates, folder)
    loop.resume()
    next(loop.steps.after(loop.update))
    return perf_counter() - start

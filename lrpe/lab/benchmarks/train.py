"""The paper's table of speed: whole training steps of the bidirectional language model, relative to Base's."""

import copy
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lrpe.attention.summation import Quadratic
from lrpe.errors import unknown_name
from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement, largest_difference
from lrpe.lab.benchmarks.lines import Call, Line, goal_of, judge
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.memory import peak_allocated
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.timing import Ratio, Timed, interleave, warn_if_busy
from lrpe.lab.experiments.methods import find_method, row
from lrpe.lab.experiments.paper import SPEED
from lrpe.lab.stamp import stamp
from lrpe.lab.training.optimization import Optimization

GOALS = {"type1": 0.93, "type2": 0.97, "type3": 0.97}
_ROUNDS, _QUICK_ROUNDS = 10, 2
_TOLERANCE = 1e-3  # of float32 logits after all layers, relative to the largest
PLAN = Optimization(rate=1e-4, optimizer="adam", betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
SEEN = -100  # the label of a token that is not to be told


@dataclass(frozen=True)
class _Sizes:
    """RoBERTa with the same part of its layers and of its vocabulary, so that each weighs as much as in the whole."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int
    batch: int

    def fields(self) -> dict[str, Any]:
        """Of LrpeConfig. Without dropout, which costs all rows the same and would only bring them closer."""
        return {
            "num_hidden_layers": self.layers,
            "hidden_size": self.width,
            "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.width,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.length,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        }

    def __str__(self) -> str:
        return f"{self.layers} × {self.width}, {self.batch} × {self.length} tokens"

    def describe(self) -> str:
        model = f"{self.layers} layers of width {self.width}, {self.heads} heads, a vocabulary of {self.vocabulary}"
        return f"RoBERTa with {model}, on {self.batch} × {self.length} tokens a step"


_FULL = _Sizes(layers=3, width=768, heads=12, vocabulary=12_566, length=512, batch=1)
QUICK = _Sizes(layers=2, width=32, heads=2, vocabulary=64, length=32, batch=2)


@dataclass(frozen=True)
class Row:
    """A method's steps relative to Base's, the paper's beside; the most bytes that a step holds, and ÷ Base's."""

    method: str
    title: str
    speed: Ratio
    paper: float
    bytes: int
    memory: float

    def lines(self, at: str, share: float) -> Iterator[Line]:
        speed, goal = self.speed, GOALS.get(self.method)
        found = (speed.ratio, speed.low, speed.high, speed.seconds, share)
        yield Line(f"steps, {self.title} ÷ Base's", at, goal, judge(speed.ratio, goal, "higher"), *found, "higher")
        yield Line(f"memory, {self.title} ÷ Base's", at, None, "", self.memory)


@dataclass(frozen=True)
class TrainResult(Measurement):
    benchmark = "train"
    sizes: _Sizes
    rows: list[Row]
    agreements: list[Agreement]

    def title(self) -> list[str]:
        return [
            "Training steps a second ÷ Base's: forward, masked loss, backward, Adam, in float32; more is better.",
            f"{self.sizes.describe()}; PlainDelta for every row.",
            f"Medians of {self.rounds} interleaved rounds, quartiles in brackets.",
        ]

    def tables(self) -> list[str]:
        header = ["", "steps ÷ Base's", "paper", "goal", "", "ms a step", "MiB a step", "÷ Base's"]
        steps = [line for line in self.lines if line.better == "higher"]
        return [in_columns(header, [self.cells(*pair) for pair in zip(self.rows, steps, strict=True)])]

    def cells(self, row: Row, line: Line) -> list[str]:
        goal, verdict = ("–", "") if self.quick else (goal_of(line), line.verdict)
        time, memory = f"{1000 * row.speed.seconds:.4g}", f"{row.bytes / 2**20:.4g}"
        return [row.title, str(row.speed), f"{row.paper:.2f}", goal, verdict, time, memory, f"{row.memory:.2f}"]

    def remarks(self) -> list[str]:
        return [
            "Before they were timed, all models gave the logits and gradients of attention by its matrix, to "
            f"{largest_difference(self.agreements):.0e} of the largest.",
            "Base beside itself, in the first row, says how far apart two measurements of the same come out.",
            "Memory is the most that a step holds beyond the weights and Adam's averages of them.",
            "The paper's are of RoBERTa-base on GPUs. Here it has a quarter of its layers and of its vocabulary, so",
            "that each weighs as much as in the whole; dropout, which all rows pay alike, is left out.",
            *warn_if_busy(min(line.processor_share for line in self.lines)),
        ]


def find_rows(names: Sequence[str]) -> list[str]:
    """Base and the rows of these names; the paper's if none is named."""
    for name in names:
        if name not in SPEED:
            raise unknown_name("row of the paper's table of speed", name, SPEED)
    return list(dict.fromkeys(("base", *(names or SPEED))))


def describe_plan(quick: bool, rows: Sequence[str]) -> str:
    """What ``measure`` would do, in sentences."""
    titles = ", ".join(find_method(name).title for name in find_rows(rows))
    sizes, rounds = (QUICK if quick else _FULL), (_QUICK_ROUNDS if quick else _ROUNDS)
    return f"Training steps of {titles}, each beside Base's in {rounds} rounds on one thread.\n{sizes.describe()}."


def measure(quick: bool = False, rounds: int | None = None, rows: Sequence[str] = ()) -> TrainResult:
    """Check every row's model against its matrix, then time their steps beside Base's. ``quick`` is tiny."""
    rounds, sizes = rounds or (_QUICK_ROUNDS if quick else _ROUNDS), QUICK if quick else _FULL
    marks, batch, names = stamp("transformers"), draw(sizes), find_rows(rows)
    models = {name: build(name, sizes) for name in names}
    agreements = [check(name, model, batch) for name, model in models.items()]
    steps = {name: training_step(model, batch) for name, model in models.items()}
    held = {name: _measure_memory(name, step) for name, step in steps.items()}
    print(f"Timing {rounds} rounds.", file=sys.stderr, flush=True)
    # A step is so long that it fills the caches anew: calls that are not counted would be wasted.
    timing = interleave([Timed(name, step) for name, step in steps.items()], steps["base"], rounds, calls=1, before=0)
    found = [row_of(name, timing.ratios[name], held) for name in names]
    lines = [line for each in found for line in each.lines(str(sizes), timing.processor_share)]
    return TrainResult(quick, rounds, read_settings(), marks, lines, sizes, found, agreements)


def row_of(name: str, time: Ratio, held: dict[str, int]) -> Row:
    (paper,) = SPEED[name]
    return Row(name, find_method(name).title, time.inverse(), paper, held[name], held[name] / held["base"])


def build(name: str, sizes: _Sizes):
    """The row's model in the fair setting."""
    from lrpe.models import LrpeConfig, LrpeForMaskedLM
    from lrpe.models.architectures import ROBERTA_BASE

    torch.manual_seed(0)
    fields = ROBERTA_BASE | sizes.fields()
    return LrpeForMaskedLM(LrpeConfig(**fields | row(name, "fair", fields)))


def draw(sizes: _Sizes) -> dict[str, Tensor]:
    """Random tokens, none of them special, and 15 % of them hidden."""
    generator = torch.Generator().manual_seed(0)
    shape, mask = (sizes.batch, sizes.length), sizes.vocabulary - 1
    ids = torch.randint(3, mask, shape, generator=generator)
    hidden = torch.rand(shape, generator=generator) < 0.15
    return {"input_ids": ids.masked_fill(hidden, mask), "labels": ids.masked_fill(~hidden, SEEN)}


def check(name: str, model: Any, batch: dict[str, Tensor]) -> Agreement:
    """The logits of one text and their gradient at its embeddings, with the fast sum and with the matrix."""
    print(f"Checking {name}.", file=sys.stderr, flush=True)
    x = model.get_input_embeddings()(batch["input_ids"][:1]).detach()
    sides = (_logits_of(model), _logits_of(specified(model)))
    return check_agreement((find_method(name).title, "its matrix"), sides, x, _TOLERANCE, "logits")


def specified(model: Any):
    """The same model, whose attention is summed by the matrix."""
    by_matrix = copy.deepcopy(model)
    for block in by_matrix.model.layers:
        block.attention.summation = Quadratic(causal=False)
    return by_matrix


def _logits_of(model: Any):
    """In evaluation: SPE draws its noise anew in training."""
    model.eval()
    return lambda x: model(inputs_embeds=x).logits


def training_step(model: Any, batch: dict[str, Tensor]) -> Call:
    model.train()
    optimizer = PLAN.build(model)

    def step() -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _measure_memory(name: str, step: Call) -> int:
    print(f"Memory of {name}.", file=sys.stderr, flush=True)
    return peak_allocated(step)

"""``lrpe bench train``: the paper's table of speed, training steps of the bidirectional language model ÷ Base's."""

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lrpe.attention.choices import Quadratic
from lrpe.errors import unknown_name
from lrpe.lab.aligned import in_columns
from lrpe.lab.benchmarks.agreement import Agreement, check_agreement, largest_difference
from lrpe.lab.benchmarks.device import place
from lrpe.lab.benchmarks.lines import Call, Line, goal_of, judge, line_table
from lrpe.lab.benchmarks.measurement import Measurement
from lrpe.lab.benchmarks.memory import peak_allocated
from lrpe.lab.benchmarks.process import read_settings
from lrpe.lab.benchmarks.timing import Ratio, Timed, interleave, warn_if_busy
from lrpe.lab.experiments.methods import find_method, row
from lrpe.lab.experiments.paper import SPEED
from lrpe.lab.stamp import stamp
from lrpe.lab.training.settings import Optimization

GOALS = {"type1": 0.93, "type2": 0.97, "type3": 0.97}
_ROUNDS, _QUICK_ROUNDS = 10, 2
_TOLERANCE = 1e-3  # relative, for float32 logits after all layers
PLAN = Optimization(rate=1e-4, optimizer="adam", betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
SEEN = -100  # the label of a token that is not masked, which the loss ignores


@dataclass(frozen=True)
class _Sizes:
    """RoBERTa with layers and vocabulary reduced by the same factor, which keeps their shares of a step."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    length: int
    batch: int

    def fields(self) -> dict[str, Any]:
        """Return fields of LrpeConfig; no dropout, which costs all rows the same and would hide differences."""
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
        return f"RoBERTa with {model}, on {self.batch} × {self.length} tokens per step"


_FULL = _Sizes(layers=3, width=768, heads=12, vocabulary=12_566, length=512, batch=1)
QUICK = _Sizes(layers=2, width=32, heads=2, vocabulary=64, length=32, batch=2)


@dataclass(frozen=True)
class Row:
    """A method's speed ÷ Base's, ours and the paper's; the peak bytes of a step, and those ÷ Base's."""

    method: str
    title: str
    speed: Ratio
    paper: float
    bytes: int
    memory: float

    def lines(self, at: str, share: float) -> Iterator[Line]:
        speed, goal = self.speed, GOALS.get(self.method)
        values = (speed.ratio, speed.low, speed.high, speed.seconds, share)
        yield Line(f"steps, {self.title} ÷ Base's", at, goal, judge(speed.ratio, goal, "higher"), *values, "higher")
        yield Line(f"memory, {self.title} ÷ Base's", at, None, "", self.memory)


@dataclass(frozen=True)
class TrainResult(Measurement):
    benchmark = "train"
    sizes: _Sizes
    rows: list[Row]
    agreements: list[Agreement]
    compiled: list[Line]  # each method's steps with torch.compile ÷ those without; none unless asked for

    def title(self) -> list[str]:
        return [
            "Training steps per second ÷ Base's: forward, masked loss, backward, Adam, in float32; higher is better.",
            f"{self.sizes.describe()}; PlainDelta for every row.",
            f"Medians of {self.rounds} interleaved rounds, quartiles in brackets.",
        ]

    def tables(self) -> list[str]:
        header = ["", "steps ÷ Base's", "paper", "goal", "", "ms per step", "MiB per step", "÷ Base's"]
        steps = [line for line in self.lines if line.better == "higher"]
        table = in_columns(header, [self.cells(*pair) for pair in zip(self.rows, steps, strict=True)])
        return [table, line_table(self.compiled, judged=False)] if self.compiled else [table]

    def cells(self, row: Row, line: Line) -> list[str]:
        goal, verdict = (goal_of(line), line.verdict) if self.judged else ("–", "")
        time, memory = f"{1000 * row.speed.seconds:.4g}", f"{row.bytes / 2**20:.4g}"
        return [row.title, str(row.speed), f"{row.paper:.2f}", goal, verdict, time, memory, f"{row.memory:.2f}"]

    def remarks(self) -> list[str]:
        return [
            "Before timing, all models gave the logits and gradients of n × n attention to a relative "
            f"{largest_difference(self.agreements):.0e}.",
            "The first row times Base against itself: its distance from 1 is the noise of the measurement.",
            "Memory is the peak of a step beyond the weights and Adam's moments.",
            "The paper measured RoBERTa-base on GPUs. Here it has a quarter of the layers and of the vocabulary, which",
            "keeps their shares of a step, and no dropout, which would cost all rows the same.",
            *warn_if_busy(min(line.processor_share for line in self.lines)),
        ]


def find_rows(names: Sequence[str]) -> list[str]:
    """Return Base and the named rows; all rows of the paper if none is named."""
    for name in names:
        if name not in SPEED:
            raise unknown_name("row of the paper's table of speed", name, SPEED)
    return list(dict.fromkeys(("base", *(names or SPEED))))


def describe_plan(quick: bool, rows: Sequence[str]) -> str:
    """Describe what ``measure`` would do."""
    titles = ", ".join(find_method(name).title for name in find_rows(rows))
    sizes, rounds = (QUICK if quick else _FULL), (_QUICK_ROUNDS if quick else _ROUNDS)
    return f"Time training steps of {titles} against Base's, in {rounds} rounds on one thread.\n{sizes.describe()}."


def measure(
    quick: bool = False, rounds: int | None = None, rows: Sequence[str] = (), compiled: bool = False
) -> TrainResult:
    """Check every row's model against n × n attention, then time its steps against Base's; ``quick`` is tiny."""
    rounds, sizes = rounds or (_QUICK_ROUNDS if quick else _ROUNDS), QUICK if quick else _FULL
    marks, batch, names = stamp("transformers"), draw(sizes), find_rows(rows)
    models = {name: build(name, sizes) for name in names}
    agreements = [check(name, model, batch) for name, model in models.items()]
    steps = {name: training_step(model, batch) for name, model in models.items()}
    held = {name: _measure_memory(name, step) for name, step in steps.items()}
    print(f"Timing {rounds} rounds.", file=sys.stderr, flush=True)
    # A step is long enough to refill the caches itself, so warm-up calls would only cost time.
    timing = interleave([Timed(name, step) for name, step in steps.items()], steps["base"], rounds, calls=1, before=0)
    timed = [row_of(name, timing.ratios[name], held) for name in names]
    lines = [line for row in timed for line in row.lines(str(sizes), timing.processor_share)]
    gains = [time_compiled(name, model, batch, str(sizes), rounds) for name, model in models.items() if compiled]
    return TrainResult(quick, rounds, read_settings(), marks, lines, sizes, timed, agreements, gains)


def time_compiled(name: str, model: Any, batch: dict[str, Tensor], at: str, rounds: int) -> Line:
    """Time the steps of the compiled model, one graph forwards and one backwards, against those of the model itself."""
    title = find_method(name).title
    print(f"Compiling {name}.", file=sys.stderr, flush=True)
    own, compiled = training_step(model, batch), training_step(torch.compile(model, fullgraph=True), batch)
    compiled()  # compiles
    timing = interleave([Timed(name, compiled)], own, rounds, calls=1, before=0)
    speed = timing.ratios[name].inverse()
    values = (speed.ratio, speed.low, speed.high, speed.seconds, timing.processor_share)
    return Line(f"steps, {title} compiled ÷ {title}", at, None, "", *values, "higher")


def row_of(name: str, time: Ratio, held: dict[str, int]) -> Row:
    (paper,) = SPEED[name]
    return Row(name, find_method(name).title, time.inverse(), paper, held[name], held[name] / held["base"])


def build(name: str, sizes: _Sizes):
    """Build the row's model in the fair setting."""
    from lrpe.models import LrpeConfig, LrpeForMaskedLM
    from lrpe.models.architectures import ROBERTA_BASE

    torch.manual_seed(0)
    fields = ROBERTA_BASE | sizes.fields()
    return place(LrpeForMaskedLM(LrpeConfig(**fields | row(name, "fair", fields))))


def draw(sizes: _Sizes) -> dict[str, Tensor]:
    """Return random tokens, none of them special, 15 % of them masked."""
    generator = torch.Generator().manual_seed(0)
    shape, mask = (sizes.batch, sizes.length), sizes.vocabulary - 1
    ids = torch.randint(3, mask, shape, generator=generator)
    hidden = torch.rand(shape, generator=generator) < 0.15
    batch = {"input_ids": ids.masked_fill(hidden, mask), "labels": ids.masked_fill(~hidden, SEEN)}
    return {name: place(x) for name, x in batch.items()}


def check(name: str, model: Any, batch: dict[str, Tensor]) -> Agreement:
    """Compare the logits of one text and their gradient at its embeddings: the fast sum against the n × n matrix."""
    print(f"Checking {name}.", file=sys.stderr, flush=True)
    x = model.get_input_embeddings()(batch["input_ids"][:1]).detach()
    sides = (_logits_of(model), _logits_of(specified(model)))
    return check_agreement((find_method(name).title, "its matrix"), sides, x, _TOLERANCE, "logits")


def specified(model: Any, causal: bool = False):
    """Return a copy of the model whose attention uses the n × n matrix."""
    by_matrix = copy.deepcopy(model)
    for block in by_matrix.model.layers:
        block.attention.summation = Quadratic(causal)
    return by_matrix


def _logits_of(model: Any):
    """Return the model as a function of embeddings, in evaluation mode, because SPE draws new noise in training."""
    model.eval()
    return lambda x: model(inputs_embeds=x).logits


def training_step(model: Any, batch: Mapping[str, Any]) -> Call:
    """Return a call that makes one update; ``batch`` holds the model's arguments."""
    model.train()
    optimizer = PLAN.build(model)  # of a compiled model's weights, which are those of the model itself

    def step() -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _measure_memory(name: str, step: Call) -> int:
    print(f"Measuring memory: {name}.", file=sys.stderr, flush=True)
    return peak_allocated(step)

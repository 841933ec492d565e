"""The paper's seven methods, small, on the text that every machine has: a table and a page in a few minutes."""

import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from lrpe.data.text.sources import load_library
from lrpe.experiments.baselines import bigram_bits, unigram_bits
from lrpe.experiments.methods import METHODS, SEVEN, fair
from lrpe.models.configuration import LrpeConfig
from lrpe.stamp import stamp
from lrpe.tasks.language_modelling import LanguageModelling
from lrpe.training.loop import Training, train
from lrpe.training.optimization import Optimization
from lrpe.training.record import Record

PAPER = {"base": 33.74, "rope": 33.13, "spe": 41.91, "per": 32.53, "type1": 31.60, "type2": 31.71, "type3": 33.95}
SIZES = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}


@dataclass(frozen=True)
class Demo:
    """What the demonstration trains."""

    updates: int = 300
    length: int = 128
    batch: int = 8
    rows: tuple[str, ...] = SEVEN
    seed: int = 0
    windows: int = 1024  # of the validation text, the first ones, that every row is scored on
    sizes: dict[str, int] = field(default_factory=lambda: dict(SIZES))

    def task(self) -> LanguageModelling:
        return LanguageModelling(load_library(tokenizer="bytes", length=self.length))

    def training(self) -> Training:
        plan = Optimization(updates=self.updates, batch=self.batch, rate=2e-3, warmup=max(1, self.updates // 10))
        every, size = max(1, self.updates // 6), 32
        batches = max(1, self.windows // size)
        return Training(plan, evaluate_every=every, evaluation_batch=size, evaluation_batches=batches, seed=self.seed)


@dataclass(frozen=True)
class DemoResult:
    demo: Demo
    bits: dict[str, float]  # a byte, by row
    curves: dict[str, list[tuple[int, float]]]
    baselines: dict[str, float]
    seconds: float
    stamp: dict[str, Any]


def run_demo(demo: Demo, folder: Path, processes: int = 2) -> DemoResult:
    """Train every row that is not trained yet, so many at a time."""
    started = time.monotonic()
    task = demo.task()  # prepares the text once, before the processes ask for it
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = {row: pool.submit(train_row, demo, row, folder / row) for row in demo.rows}
        watch(demo, folder, futures)
        bits = {row: future.result()["bits_per_byte"] for row, future in futures.items()}
    curves = {row: curve(folder / row) for row in demo.rows}
    seconds = time.monotonic() - started
    return DemoResult(demo, bits, curves, simple_models(demo, task), seconds, stamp("transformers"))


def train_row(demo: Demo, row: str, folder: Path) -> dict[str, float]:
    """One row in a process of its own, on one thread."""
    torch.set_num_threads(1)
    task = demo.task()
    torch.manual_seed(demo.seed)
    config = LrpeConfig(**demo.sizes, **task.fields(), **fair(row), max_position_embeddings=demo.length)
    described = {"demo": asdict(demo) | {"rows": [row]}, "method": row}
    return train(task, task.model_class(config), demo.training(), folder, described, METHODS[row].title)


def watch(demo: Demo, folder: Path, futures: dict[str, "Future[dict[str, float]]"]) -> None:
    """A bar over all updates of all rows, while they train."""
    total = demo.updates * len(futures)
    with tqdm(total=total, unit="update", desc="training", disable=not sys.stderr.isatty(), dynamic_ncols=True) as bar:
        last = time.monotonic()
        while not all(future.done() for future in futures.values()):
            done = {row: updates_done(folder / row) for row in futures}
            bar.n = sum(done.values())
            bar.set_postfix_str(", ".join(METHODS[row].title for row, n in done.items() if 0 < n < demo.updates))
            bar.refresh()
            if bar.disable and time.monotonic() - last > 10:
                last = time.monotonic()
                print(f"training: {bar.n} of {total} updates", file=sys.stderr, flush=True)
            time.sleep(0.5)
        for future in futures.values():
            future.result()
        bar.n = total


def updates_done(folder: Path) -> int:
    lines = Record(folder, {}, writes=False).metrics()
    return max((line["update"] for line in lines), default=0)


def curve(folder: Path) -> list[tuple[int, float]]:
    lines = Record(folder, {}, writes=False).metrics()
    name = "validation bits_per_byte"
    return [(line["update"], line[name]) for line in lines if name in line]


def simple_models(demo: Demo, task: LanguageModelling) -> dict[str, float]:
    """Bits a byte of unigrams and bigrams, on the windows that the rows are scored on."""
    streams = {split: task.text.windows(split).stream for split in ("train", "validation")}
    train_ids = streams["train"].read(0, min(len(streams["train"]), 4_000_000))
    scored = streams["validation"].read(0, min(len(streams["validation"]), demo.windows * demo.length))
    size = len(task.text.tokenizer)
    tuning = train_ids[-100_000:]
    return {
        "unigrams": unigram_bits(train_ids, scored, size),
        "bigrams": bigram_bits(train_ids[:-100_000], tuning, scored, size),
    }


def describe_demo(result: DemoResult) -> list[str]:
    """What the figures are, in sentences."""
    demo, mark = result.demo, result.stamp
    sizes = demo.sizes
    text = partial("{:,}".format)
    return [
        f"A demonstration, not the paper's experiment: {sizes['num_hidden_layers']} layers of width "
        f"{sizes['hidden_size']}, {text(demo.updates)} updates of {demo.batch} × {demo.length} bytes, one seed.",
        f"Trained on the sources of this Python's standard library; scored on {text(demo.windows * demo.length)} bytes "
        "of files held out. At this size and with one seed, differences of a few hundredths mean nothing.",
        "One φ (1 + elu) and one normaliser (PlainDelta) for every row. Base has sinusoidal positions and no other row "
        "has absolute ones; PER has the decay that it was published with.",
        "The paper's figures beside ours are test perplexities on WikiText-103, of another model and text: only the "
        "order of the rows can be compared. Its SPE held no positions, so that cell cannot be.",
        f"{mark['date']}, commit {(mark['commit'] or 'unknown')[:12]}, {mark['machine']}, torch "
        f"{mark['versions']['torch']}, seed {demo.seed}, {result.seconds:.0f} s.",
    ]

"""``lrpe bench``: speed as ratios, each measurement in a process of its own."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrpe.benchmarks.plot import prepare_plot, save_plot
from lrpe.benchmarks.process import measure_apart
from lrpe.benchmarks.results import prepare, save
from lrpe.errors import require


@dataclass(frozen=True)
class BenchEncoding:
    """Time the encodings and their peers, in copies of the tensor.

    A goal that is missed prints as "short" and is not an error: this is a measurement.

    Attributes:
        threads: threads to compute with, each on a processor of its own.
        rounds: rounds in which everything is timed once; 20 if not given, and 2 with --quick.
        quick: tiny shapes, to see that everything runs.
        json: print JSON instead of tables.
        save: write PATH.json and PATH.txt as well.
    """

    threads: int = 1
    rounds: int | None = None
    quick: bool = False
    json: bool = False
    save: Path | None = None

    def run(self) -> int:
        options = {"quick": self.quick, "rounds": self.rounds}
        return measure_and_show("encoding", self.threads, options, self.json, self.save)


@dataclass(frozen=True)
class BenchAttention:
    """Time attention beside its peers: the sums, their memory, the block of each encoding, and a decoding step.

    Every row has a goal, a figure, and "pass" or "short"; a peer that is not installed is "missing".

    Attributes:
        threads: threads to compute with, each on a processor of its own.
        rounds: rounds in which everything is timed once; 15 if not given, and 2 with --quick.
        quick: tiny shapes, to see that everything runs.
        json: print JSON instead of the table.
        plot: draw the table to a .png, .svg or .html file.
        save: write PATH.json and PATH.txt as well.
    """

    threads: int = 1
    rounds: int | None = None
    quick: bool = False
    json: bool = False
    plot: Path | None = None
    save: Path | None = None

    def run(self) -> int:
        options = {"quick": self.quick, "rounds": self.rounds}
        return measure_and_show("attention", self.threads, options, self.json, self.save, self.plot)


@dataclass(frozen=True)
class BenchDecode:
    """Time a whole language model that reads a long prompt and writes on, beside softmax with a static cache.

    Every row has a goal, a figure, and "pass" or "short".

    Attributes:
        threads: threads to compute with, each on a processor of its own.
        rounds: how often the prompt is read; 3 if not given, and 1 with --quick.
        quick: a tiny model, to see that everything runs.
        json: print JSON instead of the table.
        plot: draw the table to a .png, .svg or .html file.
        save: write PATH.json and PATH.txt as well.
    """

    threads: int = 1
    rounds: int | None = None
    quick: bool = False
    json: bool = False
    plot: Path | None = None
    save: Path | None = None

    def run(self) -> int:
        options = {"quick": self.quick, "rounds": self.rounds}
        return measure_and_show("decode", self.threads, options, self.json, self.save, self.plot)


@dataclass(frozen=True)
class BenchLength:
    """Time and memory of a forward pass as the text grows, beside softmax attention and the matrix.

    A doubling of the length has a goal for time and for memory, and "pass" or "short".

    Attributes:
        threads: threads to compute with, each on a processor of its own.
        rounds: rounds in which everything is timed once; 5 if not given, and 2 with --quick.
        longest: up to 2^LONGEST tokens; 20 is a million, and takes 14 GiB and a quarter of an hour.
        quick: a few hundred tokens, to see that everything runs.
        json: print JSON instead of tables.
        plot: draw the lengths to a .png, .svg or .html file.
        save: write PATH.json and PATH.txt as well.
    """

    threads: int = 1
    rounds: int | None = None
    longest: int = 17
    quick: bool = False
    json: bool = False
    plot: Path | None = None
    save: Path | None = None

    def run(self) -> int:
        require(
            15 <= self.longest <= 24, f"The longest text has 2^15 to 2^24 tokens; got 2^{self.longest}: --longest 17."
        )
        options = {"quick": self.quick, "rounds": self.rounds, "longest": self.longest}
        return measure_and_show("length", self.threads, options, self.json, self.save, self.plot)


def measure_and_show(
    benchmark: str, threads: int, options: dict[str, Any], as_json: bool, to: Path | None, plot: Path | None = None
) -> int:
    """Measure, print, draw and save. What can go wrong with the files is found before the measurement."""
    rounds = options["rounds"]
    require(rounds is None or rounds >= 1, f"There is one round or more; got rounds={rounds}.")
    if plot is not None:
        prepare_plot(plot)
    for path in filter(None, (to, plot)):
        prepare(path)
    result, text = measure_apart(benchmark, threads, **options)
    print(json.dumps(result, indent=2, ensure_ascii=False) if as_json else text)
    if to is not None:
        save(to, result, text)
    if plot is not None:
        save_plot(plot, result)
    return 0

"""``lrpe bench``: speed as ratios, each measurement in a process of its own."""

import json
from dataclasses import dataclass
from pathlib import Path

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
        require(self.rounds is None or self.rounds >= 1, f"There is one round or more; got rounds={self.rounds}.")
        if self.save is not None:
            prepare(self.save)
        result, text = measure_apart("encoding", self.threads, quick=self.quick, rounds=self.rounds)
        print(json.dumps(result, indent=2, ensure_ascii=False) if self.json else text)
        if self.save is not None:
            save(self.save, result, text)
        return 0

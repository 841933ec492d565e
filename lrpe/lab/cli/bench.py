"""``lrpe bench``: speed as ratios, each measurement in a process of its own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from lrpe.errors import require
from lrpe.lab.cli.verb import Verb
from lrpe.lab.cli.words import words
from lrpe.schema import Range


@dataclass(frozen=True)
class Bench:
    """What every benchmark is told, and what it does: measure, print, draw and save.

    Attributes:
        threads: threads to compute with, each on a processor of its own.
        rounds: rounds in which everything is timed once.
        quick: tiny sizes, to see that everything runs.
        json: print JSON instead of tables.
        plot: draw the result to a .png, .svg or .html file.
        save: write PATH.json and PATH.txt as well.
    """

    benchmark: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    threads: Annotated[int, Range(1, 1024)] = 1
    rounds: Annotated[int, Range(1, 10**6)] | None = None
    quick: bool = False
    json: bool = False
    plot: Path | None = None
    save: Path | None = None

    def run(self) -> int:
        """Measure and show. What can go wrong with the files is found before the measurement."""
        from lrpe.lab.benchmarks.measurement import prepare, save
        from lrpe.lab.benchmarks.process import measure_apart
        from lrpe.lab.report.benchmark import prepare_plot, save_plot

        require(self.rounds is None or self.rounds >= 1, f"There is one round or more; got rounds={self.rounds}.")
        if self.plot is not None:
            prepare_plot(self.plot)
        for path in filter(None, (self.save, self.plot)):
            prepare(path)
        result, text = measure_apart(self.benchmark, self.threads, **self.options())
        print(json.dumps(result, indent=2, ensure_ascii=False) if self.json else text)
        if self.save is not None:
            save(self.save, result, text)
        if self.plot is not None:
            save_plot(self.plot, result)
        return 0

    def options(self) -> dict[str, Any]:
        return {"quick": self.quick, "rounds": self.rounds}


@dataclass(frozen=True)
class BenchEncoding(Bench):
    """Time the encodings and their peers, in copies of the tensor.

    A goal that is missed prints as "short" and is not an error: this is a measurement.

    Attributes:
        rounds: rounds in which everything is timed once; 20 if not given, and 2 with --quick.
    """

    benchmark = "encoding"


@dataclass(frozen=True)
class BenchAttention(Bench):
    """Time attention beside its peers: the sums, their memory, the block of each encoding, and a decoding step.

    Every row has a goal, a figure, and "pass" or "short"; a peer that is not installed is "missing".

    Attributes:
        rounds: rounds in which everything is timed once; 15 if not given, and 2 with --quick.
    """

    benchmark = "attention"


@dataclass(frozen=True)
class BenchBlock(Bench):
    """Time the attention block of each encoding beside Base's: with ready tables, learned angles, an output norm.

    It is a part of ``lrpe bench attention``, with a verb of its own.

    Attributes:
        rounds: rounds in which everything is timed once; 15 if not given, and 2 with --quick.
    """

    benchmark = "block"


@dataclass(frozen=True)
class BenchDecode(Bench):
    """Time a whole language model that reads a long prompt and writes on, beside softmax with a static cache.

    Every row has a goal, a figure, and "pass" or "short".

    Attributes:
        rounds: how often the prompt is read; 3 if not given, and 1 with --quick.
    """

    benchmark = "decode"
    needs: ClassVar[tuple[str, ...]] = ("models",)


@dataclass(frozen=True)
class BenchLength(Bench):
    """Time and memory of a forward pass as the text grows, beside softmax attention and the matrix.

    A doubling of the length has a goal for time and for memory, and "pass" or "short".

    Attributes:
        rounds: rounds in which everything is timed once; 5 if not given, and 2 with --quick.
        longest: up to 2^LONGEST tokens; 20 is a million, and takes 14 GiB and a quarter of an hour.
    """

    benchmark = "length"
    longest: Annotated[int, Range(15, 24)] = 17

    def options(self) -> dict[str, Any]:
        require(15 <= self.longest <= 24, f"--longest must be from 15 to 24; got {self.longest}.")
        return super().options() | {"longest": self.longest}


@dataclass(frozen=True)
class BenchLoop(Bench):
    """Time what the training loop itself costs beside forward, backward and step, and what it costs to resume.

    Attributes:
        rounds: updates that are timed; 100 if not given, and 3 with --quick.
    """

    benchmark = "loop"
    needs: ClassVar[tuple[str, ...]] = ("train",)


@dataclass(frozen=True)
class BenchTrain(Bench):
    """Time whole training steps of each method relative to Base's: the paper's table of speed, its numbers beside.

    RoBERTa-base with a quarter of its layers and of its vocabulary; it takes some five minutes on a quiet processor.

    Attributes:
        rounds: rounds in which everything is timed once; 10 if not given, and 2 with --quick.
        rows: methods to time beside base, as rope,type2; the paper's if not given.
    """

    benchmark = "train"
    needs: ClassVar[tuple[str, ...]] = ("train",)
    rows: str = ""

    def options(self) -> dict[str, Any]:
        from lrpe.lab.benchmarks.train import find_rows

        return super().options() | {"rows": find_rows(words(self.rows))}


@dataclass(frozen=True)
class BenchCompare:
    """Show what changed from one saved result of a benchmark to another, beyond the noise.

    Attributes:
        files: A.json and B.json, as --save wrote them.
        json: print JSON instead of a table.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    files: list[Path] = field(default_factory=list, metadata={"words": "FILE"})
    json: bool = False

    def run(self) -> int:
        from lrpe.lab.benchmarks.compare import compare_results

        require(
            len(self.files) == 2,
            f"Two results are compared: A.json B.json; got {' '.join(map(str, self.files)) or 'none'}.",
        )
        comparison = compare_results(*self.files)
        print(json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False) if self.json else comparison)
        return 0


_KINDS = (BenchEncoding, BenchAttention, BenchBlock, BenchDecode, BenchLength, BenchTrain, BenchLoop)
BENCHMARKS: Mapping[str, type[Verb]] = {kind.benchmark: kind for kind in _KINDS} | {"compare": BenchCompare}

"""``lrpe bench``: measure speed as ratios, each benchmark in its own process."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from lrpe.errors import require
from lrpe.lab.cli.words import words
from lrpe.schema import Range


@dataclass(frozen=True)
class Bench:
    """The options of every benchmark, and its steps: measure, print, save and plot.

    Attributes:
        device: cpu, cuda or cuda:N; times on cuda are those of the GPU.
        threads: number of threads, each on its own processor.
        rounds: number of rounds; each round times everything once.
        quick: use tiny sizes, to check that everything runs.
        json: print JSON instead of tables.
        plot: draw the result to a .png, .svg or .html file.
        save: write PATH.json and PATH.txt as well.
    """

    benchmark: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    device: str = "cpu"
    threads: Annotated[int, Range(1, 1024)] = 1
    rounds: Annotated[int, Range(1, 10**6)] | None = None
    quick: bool = False
    json: bool = False
    plot: Path | None = None
    save: Path | None = None

    def run(self) -> int:
        """Measure, print and save. Output files are checked before the measurement, which may be long."""
        from lrpe.lab.benchmarks.measurement import prepare, save
        from lrpe.lab.benchmarks.process import measure_apart
        from lrpe.lab.report.benchmark import prepare_plot, save_plot

        require(self.rounds is None or self.rounds >= 1, f"rounds must be at least 1; got rounds={self.rounds}.")
        if self.plot is not None:
            prepare_plot(self.plot)
        for path in filter(None, (self.save, self.plot)):
            prepare(path)
        result, text = measure_apart(self.benchmark, self.threads, self.device, **self.options())
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
    """Time the encodings and comparable libraries, relative to a copy of the tensor.

    A missed goal is printed as "short"; it is not an error.

    Attributes:
        rounds: number of rounds; each round times everything once; 20 if not given, and 2 with --quick.
    """

    benchmark = "encoding"


@dataclass(frozen=True)
class BenchAttention(Bench):
    """Time whole attention against softmax, other linear attention, and the machine's limit, with engines named.

    The default, RoPE, Types 1 and 3, gated and selective attention, with φ, encoding, decay and normaliser; forward,
    and forward + backward. A row with a goal has "pass" or "short"; a library that is not installed is "missing".

    Attributes:
        rounds: number of rounds; each round times everything once; 15 if not given, and 2 with --quick.
    """

    benchmark = "attention"


@dataclass(frozen=True)
class BenchBlock(Bench):
    """Time each encoding's attention block relative to Base's: with ready tables, learned angles, an output norm.

    Attributes:
        rounds: number of rounds; each round times everything once; 15 if not given, and 2 with --quick.
    """

    benchmark = "block"


@dataclass(frozen=True)
class BenchDecode(Bench):
    """Time a language model that reads a long prompt and continues it, against softmax with a static cache.

    Every row has a goal, a result, and "pass" or "short".

    Attributes:
        rounds: number of times the prompt is read; 3 if not given, and 1 with --quick.
    """

    benchmark = "decode"
    needs: ClassVar[tuple[str, ...]] = ("models",)


@dataclass(frozen=True)
class BenchLength(Bench):
    """Measure time and memory of a forward pass as the text grows, against softmax attention and the full matrix.

    Each doubling of the length has a goal for time and one for memory, and "pass" or "short". With several processes it
    is one row on one process and shared by these; the memory per process of two has a goal.

    Attributes:
        rounds: number of rounds; each round times everything once; 5 if not given, and 2 with --quick.
        longest: measure up to 2^LONGEST tokens; 20 is a million, and takes 14 GiB and a quarter of an hour.
        processes: number of processes that share a row.
    """

    benchmark = "length"
    longest: Annotated[int, Range(15, 24)] = 17
    processes: Annotated[int, Range(1, 64)] = 1

    def options(self) -> dict[str, Any]:
        require(15 <= self.longest <= 24, f"--longest must be from 15 to 24; got --longest {self.longest}.")
        return super().options() | {"longest": self.longest, "processes": self.processes}


@dataclass(frozen=True)
class BenchContext(Bench):
    """Measure the memory per process of a training step on one long row, on one process and shared by several.

    The memory per process of two has a goal, and "pass" or "short".

    Attributes:
        rounds: number of steps; the least memory and the median time are shown; 1 if not given.
        processes: number of processes that share the row.
        tokens: lengths of the row, such as 16384,65536.
        layers: number of layers.
        width: width of the model, up to 64 or a multiple of it; heads have 64 of it.
    """

    benchmark = "context"
    needs: ClassVar[tuple[str, ...]] = ("train",)
    processes: Annotated[int, Range(1, 1024)] = 2
    tokens: str = "16384,32768,65536"
    layers: Annotated[int, Range(1, 1024)] = 4
    width: Annotated[int, Range(16, 65536)] = 256

    def options(self) -> dict[str, Any]:
        lengths = [int(word) if word.isdecimal() else 0 for word in words(self.tokens)]
        require(
            bool(lengths) and all(n >= self.processes for n in lengths),
            f"--tokens must be lengths of at least one token per process, such as 16384,65536; got {self.tokens!r}.",
        )
        require(
            self.width <= 64 or self.width % 64 == 0,
            f"--width must be at most 64, or a multiple of 64, as heads have 64 of it; got --width {self.width}.",
        )
        sizes = {"processes": self.processes, "layers": self.layers, "width": self.width}
        return super().options() | {"lengths": lengths} | sizes


@dataclass(frozen=True)
class BenchLoop(Bench):
    """Time the overhead of the training loop over forward, backward and step, and the cost of resuming.

    Attributes:
        rounds: number of updates to time; 100 if not given, and 3 with --quick.
    """

    benchmark = "loop"
    needs: ClassVar[tuple[str, ...]] = ("train",)


@dataclass(frozen=True)
class BenchTrain(Bench):
    """Time training steps of each method relative to Base's, beside the numbers of the paper's speed table.

    The model is RoBERTa-base with a quarter of its layers and vocabulary. It takes five minutes on an idle processor.

    Attributes:
        rounds: number of rounds; each round times everything once; 10 if not given, and 2 with --quick.
        rows: methods to time besides base, such as rope,type2; the paper's if not given.
        compile: also time each model with torch.compile, relative to the same model without it.
    """

    benchmark = "train"
    needs: ClassVar[tuple[str, ...]] = ("train",)
    rows: str = ""
    compile: bool = False

    def options(self) -> dict[str, Any]:
        from lrpe.lab.benchmarks.train import find_rows

        return super().options() | {"rows": find_rows(words(self.rows)), "compiled": self.compile}


@dataclass(frozen=True)
class BenchLanguage(Bench):
    """Time training steps of the default language model, against softmax attention and Llama, as texts grow.

    From 2,048 tokens on the default has a goal, and "pass" or "short". It takes five minutes on an idle processor.

    Attributes:
        rounds: number of rounds; each round times everything once; 5 if not given, and 1 with --quick.
    """

    benchmark = "language"
    needs: ClassVar[tuple[str, ...]] = ("train",)


@dataclass(frozen=True)
class BenchCompare:
    """Show which differences between two saved benchmark results exceed the noise.

    Attributes:
        files: two results, A.json and B.json, written by --save.
        json: print JSON instead of a table.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    files: list[Path] = field(default_factory=list, metadata={"words": "FILE"})
    json: bool = False

    def run(self) -> int:
        from lrpe.lab.benchmarks.compare import compare_results

        require(
            len(self.files) == 2,
            f"lrpe bench compare takes two results, A.json B.json; got {' '.join(map(str, self.files)) or 'none'}.",
        )
        comparison = compare_results(*self.files)
        print(json.dumps(comparison.to_dict(), indent=2, ensure_ascii=False) if self.json else comparison)
        return 0


_KINDS = (
    *(BenchEncoding, BenchAttention, BenchBlock, BenchDecode, BenchLength, BenchContext, BenchTrain, BenchLanguage),
    BenchLoop,
)
BENCHMARKS = {kind.benchmark: kind for kind in _KINDS} | {"compare": BenchCompare}

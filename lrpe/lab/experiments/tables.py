"""The paper's tables, and three of ours: rows × printed columns, and the experiment that each number is read from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lrpe.attention.normalizer import NORMALIZERS
from lrpe.encodings.angles import SCALINGS
from lrpe.errors import require, unknown_name
from lrpe.lab.experiments import paper
from lrpe.lab.experiments.columns import ARENA, GLUE, LANGUAGE, find_column
from lrpe.lab.experiments.experiment import Experiment
from lrpe.lab.experiments.methods import SEVEN, SIX, find_method
from lrpe.lab.experiments.probe_columns import PROBES
from lrpe.lab.tasks.language_modelling import octave_name


def split_row(row: str) -> tuple[str, str]:
    """Return the method of a row and the scaling of its α, which may be empty: ("type2", "yarn") for type2+yarn."""
    method, plus, scaling = row.partition("+")
    if plus and scaling not in SCALINGS:
        raise unknown_name("scaling of α", scaling, SCALINGS)
    return method, scaling


@dataclass(frozen=True)
class PrintedColumn:
    """A printed column: which experiment a row's number is read from, and where in its results.

    Attributes:
        title: the heading.
        column: the column of the experiments.
        split, metric: where the number is in an experiment's results.
        better: the direction in which rows are ranked; None if they are not.
        paper: the paper's numbers by row.
        digits: decimals that are printed.
        factor: factor applied to the number before printing: 100 for percentages.
        matrix: the Λ that a row, which is then a P, is multiplied with; empty if a row is a method.
        changes: fields of the experiment that this column replaces, such as ``lengths``.
    """

    title: str
    column: str
    split: str
    metric: str
    better: Literal["lower", "higher"] | None
    paper: dict[str, float]
    digits: int = 2
    factor: float = 1.0
    matrix: str = ""
    changes: dict[str, Any] = field(default_factory=dict)

    def experiment(self, row: str, setting: str) -> Experiment:
        """Return the row's experiment as the paper ran it."""
        return replace(find_column(self.column)(self.method(row), setting), **self.changes)

    def method(self, row: str) -> str:
        """Return the method that is trained for a row: type2 for type2+yarn, whose α are scaled after training."""
        if self.changes.get("lengths"):
            return split_row(row)[0]
        return f"{row}*{self.matrix}" if self.matrix else row

    def read(self, results: dict[str, dict[str, float]], row: str) -> float | None:
        """Return the row's number from the results of its experiment, if they have it."""
        scaling = split_row(row)[1]
        split = f"{self.split}, {scaling}" if scaling else self.split
        value = results.get(split, {}).get(self.metric)
        return None if value is None else self.factor * value


@dataclass(frozen=True)
class Table:
    """Rows × printed columns.

    Attributes:
        name: the name that users type.
        title: the title that is printed.
        rows: the paper's rows.
        printed_columns: the printed columns, from left to right.
        average: the paper's name for the mean of the printed columns, if it prints one.
        average_paper: the paper's averages by row.
        baselines: what is shown below the rows: the perplexity of counted tokens and pairs, the accuracy of the
            majority class, chance, or nothing.
        texts: the columns that it is made of, if each can be any text.
        references: the paper's columns on other data than ours, which are printed separately.
    """

    name: str
    title: str
    rows: tuple[str, ...]
    printed_columns: tuple[PrintedColumn, ...]
    average: str | None = None
    average_paper: dict[str, float] | None = None
    baselines: Literal["counted", "majority", "chance"] | None = None
    texts: tuple[str, ...] = ()
    references: tuple[PrintedColumn, ...] = ()


def language(columns: Sequence[str]) -> Table:
    """Return the table of language modelling: perplexity on WikiText-103 and Books."""
    titles = {"wikitext103": "WikiText-103", "books": "Books", "wikitext2": "WikiText-2", "stdlib": "Python's library"}
    numbers = {
        ("wikitext103", "validation"): 0,
        ("wikitext103", "test"): 1,
        ("books", "validation"): 2,
        ("books", "test"): 3,
    }
    texts = _choose_columns(columns, LANGUAGE, ("wikitext103", "books"))
    printed = [
        PrintedColumn(
            f"{titles[column]} {split}", column, split, "perplexity", "lower",
            paper.read_column(paper.LANGUAGE, numbers[column, split]) if (column, split) in numbers else {},
        )
        for column in texts
        for split in ("validation", "test")
    ]  # fmt: skip
    title = "Autoregressive language modelling, perplexity"
    return Table("lm", title, SEVEN, tuple(printed), baselines="counted", texts=tuple(texts))


def glue(columns: Sequence[str]) -> Table:
    """Return the table of GLUE after masked language modelling."""
    metrics = {"cola": "matthews", "stsb": "pearson"}
    known = {"wikibook": None, **GLUE}
    printed, number = [], 0
    for column in known:
        task = column.removeprefix("glue-")
        for split in ("validation", "mismatched") if task == "mnli" else ("validation",):
            numbers, number = paper.read_column(paper.GLUE, number), number + 1
            if column not in _choose_columns(columns, known, tuple(known)):
                continue
            if column == "wikibook":
                printed.append(PrintedColumn("MLM bits", column, split, "bits", "lower", numbers))
                continue
            title = task.upper() + {"validation": "-m", "mismatched": "-mm"}[split] * (task == "mnli")
            metric = metrics.get(task, "accuracy")
            printed.append(PrintedColumn(title, column, split, metric, "higher", numbers, factor=100))
    title = "GLUE after masked language modelling (bits, then %; STS-B is Pearson's)"
    return Table("glue", title, SEVEN, tuple(printed), baselines="majority")


def imagenet(columns: Sequence[str]) -> Table:
    """Return the table of ImageNet-1k with DeiT-small, or the same rows and mixed axes on CIFAR-10."""
    known = ("imagenet", "cifar10")
    (column,) = _one(_choose_columns(columns, known, ("imagenet",)))
    if column == "cifar10":
        return _cifar10()
    printed = (
        PrintedColumn(
            "accuracy %", column, "validation", "accuracy", "higher", paper.read_column(paper.IMAGENET, 0), factor=100
        ),
        PrintedColumn(
            "parameters, M", column, "model", "parameters", None, paper.read_column(paper.IMAGENET, 1), factor=1e-6
        ),
    )
    return Table("imagenet", "Image classification, DeiT-small", SIX, printed, baselines="majority")


def _cifar10() -> Table:
    printed = (
        PrintedColumn("accuracy %", "cifar10", "test", "accuracy", "higher", {}, factor=100),
        PrintedColumn("parameters, M", "cifar10", "model", "parameters", None, {}, digits=3, factor=1e-6),
    )
    return Table("imagenet", "Image classification, CIFAR-10 in colour", (*SIX, "mixed"), printed, baselines="majority")


def arena(columns: Sequence[str]) -> Table:
    """Return the table of the Long-Range Arena."""
    wanted = _choose_columns(columns, ARENA, tuple(ARENA))
    titles = {"lra-listops": "ListOps"}
    printed = tuple(
        PrintedColumn(
            titles.get(column, column.removeprefix("lra-").title()), column, "test", "accuracy", "higher",
            paper.read_column(paper.ARENA, number), factor=100,
        )
        for number, column in enumerate(ARENA)
        if column in wanted
    )  # fmt: skip
    average = paper.read_column(paper.ARENA, 5) if len(wanted) == len(ARENA) else {}
    return Table("lra", "Long-Range Arena, accuracy in %", SIX, printed, "AVG", average, baselines="majority")


def basis(columns: Sequence[str]) -> Table:
    """Return the ablation of P: every P with every Λ."""
    (column,) = _one_language(columns)
    printed = tuple(
        PrintedColumn(
            Lambda.title(),
            column,
            "validation",
            "perplexity",
            "lower",
            paper.read_column(paper.BASIS, number) if column == "wikitext103" else {},
            matrix=Lambda,
        )
        for number, Lambda in enumerate(("unitary", "orthogonal", "permutation"))
    )
    average = paper.read_column(paper.BASIS, 3) if column == "wikitext103" else {}
    title = f"P by rows, Λ by columns, validation perplexity{_of_library(column)}"
    return Table("basis", title, tuple(paper.BASIS), printed, "Avg.", average, texts=(column,))


def normalizer(columns: Sequence[str]) -> Table:
    """Return every encoding with every normaliser, which the paper does not have: on a text, images or an LRA task."""
    builders = (
        dict.fromkeys(LANGUAGE, language) | {"imagenet": imagenet, "cifar10": imagenet} | dict.fromkeys(ARENA, arena)
    )
    (column,) = _one(_choose_columns(columns, builders, ("wikitext103",)))
    papers = builders[column]((column,))
    first = replace(papers.printed_columns[0], paper={})
    printed = tuple(
        replace(first, title=f'"{name}"', changes={"model": {"normalizer": name}, "variant": f"normalizer-{name}"})
        for name in NORMALIZERS
        if name != "clamped"  # it only repeats what the authors ran
    )
    scores = (
        f"{first.split} perplexity{_of_library(column)}" if papers.texts else f"{first.split} accuracy in %: {column}"
    )
    title = f"Encodings by rows, normalisers by columns, {scores}"
    baselines = None if papers.texts else papers.baselines
    return Table("normalizer", title, papers.rows, printed, baselines=baselines, texts=papers.texts)


_TIMES = (1, 2, 4, 8, 16, 32)
_SCALED = tuple(f"{row}+{kind}" for row in ("rope", "type2") for kind in ("interpolation", "ntk", "yarn"))
_LENGTH_ROWS = (*SEVEN, "hope", "spread", "gated", "recommended", *_SCALED)


def length(columns: Sequence[str]) -> Table:
    """Return models trained at one length and scored at others; "type2+yarn" scales its angles to each length."""
    (column,) = _one_language(columns)
    changes = {"lengths": _TIMES, "variant": "lengths"}
    printed = tuple(
        PrintedColumn(f"×{times}", column, f"×{times}", "perplexity", "lower", {}, changes=changes) for times in _TIMES
    )
    title = f"Validation perplexity at multiples of the trained length{_of_library(column)}"
    return Table("length", title, _LENGTH_ROWS, printed, texts=(column,))


_READ = 8  # the multiple of the trained length of which the table of positions shows every octave


def position(columns: Sequence[str]) -> Table:
    """Return perplexity by position in windows of 8 times the trained length, from the runs of the table ``length``."""
    (column,) = _one_language(columns)
    changes = {"lengths": _TIMES, "variant": "lengths"}
    ends = [times for times in _TIMES if times <= _READ]
    printed = tuple(
        PrintedColumn(
            f"×{begin}–×{end}" if begin else f"to ×{end}", column, f"×{_READ}", octave_name(number), "lower", {},
            changes=changes,
        )
        for number, (begin, end) in enumerate(zip((0, *ends), ends, strict=False))
    )  # fmt: skip
    title = f"Validation perplexity by position, in windows of ×{_READ} the trained length{_of_library(column)}"
    return Table("position", title, _LENGTH_ROWS, printed, texts=(column,))


_PROBE_ROWS = (
    *("base", "rope", "type1", "type2", "type3", "pope", "hope", "spread", "learned-decay", "gated"),
    *("selective", "selective-gated", "switched-gated", "mamba3", "softmax", "hybrid", "recommended"),
)
_PROBE_TITLES = {
    "parity": "Parity", "s3": "S3", "flip-flop": "Flip-flop", "copying": "Copying", "fixed-offset": "Offset",
    "indirect-indexing": "Indirect", "mqar": "MQAR", "duplicate-keys": "Duplicates", "associative-recall": "Recall",
}  # fmt: skip


def probes(columns: Sequence[str]) -> Table:
    """Return the probes: accuracy per token at the trained size, and beyond it."""
    printed = tuple(
        PrintedColumn(_PROBE_TITLES[column] + ending, column, split, "accuracy", "higher", {}, digits=1, factor=100)
        for column in _choose_columns(columns, PROBES, tuple(PROBES))
        for ending, split in _probe_splits(column).items()
    )
    return Table("probes", "Probes, accuracy in %", _PROBE_ROWS, printed, baselines="chance")


def _probe_splits(column: str) -> dict[str, str]:
    """Return the splits that are printed, by the ending of their headings."""
    times = find_column(column)().data.options.get("times")
    beyond = {} if times is None else {f" ×{times}": "longer"}
    return {"": "validation"} | beyond | ({" sparse": "sparse"} if column == "flip-flop" else {})


TABLES: dict[str, Callable[[Sequence[str]], Table]] = {
    "lm": language, "glue": glue, "imagenet": imagenet, "lra": arena, "basis": basis, "normalizer": normalizer,
    "length": length, "position": position, "probes": probes,
}  # fmt: skip


def find_table(name: str, columns: Sequence[str]) -> Table:
    """Return a table with some of its columns, or all of the paper's if none is named."""
    if name not in TABLES:
        raise unknown_name("table", name, [*TABLES, "speed"])
    return TABLES[name](columns)


def _choose_columns(columns: Sequence[str], known: Sequence[str] | dict, default: Sequence[str]) -> list[str]:
    for column in columns:
        if column not in known:
            raise unknown_name("column of this table", column, list(known))
    return list(columns or default)


def _of_library(column: str) -> str:
    return " of Python's library" if column == "stdlib" else ""


def _one_language(columns: Sequence[str]) -> list[str]:
    return _one(_choose_columns(columns, LANGUAGE, ("wikitext103",)))


def _one(chosen: list[str]) -> list[str]:
    require(len(chosen) == 1, f"This table takes exactly one column; got {', '.join(chosen)}.")
    return chosen


def title_of(row: str) -> str:
    """Return the printed title of a row."""
    if row in paper.BASIS:
        return row
    method, scaling = split_row(row)
    return ", ".join(filter(None, (find_method(method).title, scaling)))

"""The paper's tables, and two of our own."""

from collections.abc import Callable, Sequence

from lrpe.attention.normalizer import NORMALIZERS
from lrpe.errors import require, unknown_name
from lrpe.lab.experiments import paper
from lrpe.lab.experiments.columns.arena import ARENA
from lrpe.lab.experiments.columns.glue import GLUE
from lrpe.lab.experiments.columns.language import LANGUAGE
from lrpe.lab.experiments.methods import SEVEN, SIX, find_method
from lrpe.lab.experiments.table import Figure, Table, split_row


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
    figures = [
        Figure(
            f"{titles[column]} {split}", column, split, "perplexity", "lower",
            paper.read_column(paper.LANGUAGE, numbers[column, split]) if (column, split) in numbers else {},
        )
        for column in texts
        for split in ("validation", "test")
    ]  # fmt: skip
    title = "Autoregressive language modelling, perplexity"
    return Table("lm", title, SEVEN, tuple(figures), counted=True, texts=tuple(texts))


def glue(columns: Sequence[str]) -> Table:
    """Return the table of GLUE after masked language modelling."""
    metrics = {"cola": "matthews", "stsb": "pearson"}
    known = {"wikibook": None, **GLUE}
    figures, number = [], 0
    for column in known:
        task = column.removeprefix("glue-")
        for split in ("validation", "mismatched") if task == "mnli" else ("validation",):
            numbers, number = paper.read_column(paper.GLUE, number), number + 1
            if column not in _choose_columns(columns, known, tuple(known)):
                continue
            if column == "wikibook":
                figures.append(Figure("MLM bits", column, split, "bits", "lower", numbers))
                continue
            title = task.upper() + {"validation": "-m", "mismatched": "-mm"}[split] * (task == "mnli")
            metric = metrics.get(task, "accuracy")
            figures.append(Figure(title, column, split, metric, "higher", numbers, factor=100))
    return Table(
        "glue", "GLUE after masked language modelling (bits, then %; STS-B is Pearson's)", SEVEN, tuple(figures)
    )


def imagenet(columns: Sequence[str]) -> Table:
    """Return the table of ImageNet-1k with DeiT-small."""
    (column,) = _choose_columns(columns, ("imagenet",), ("imagenet",))
    figures = (
        Figure(
            "accuracy %", column, "validation", "accuracy", "higher", paper.read_column(paper.IMAGENET, 0), factor=100
        ),
        Figure("parameters, M", column, "model", "parameters", None, paper.read_column(paper.IMAGENET, 1), factor=1e-6),
    )
    return Table("imagenet", "Image classification, DeiT-small", SIX, figures)


def arena(columns: Sequence[str]) -> Table:
    """Return the table of the Long-Range Arena."""
    wanted = _choose_columns(columns, ARENA, tuple(ARENA))
    titles = {"lra-listops": "ListOps"}
    figures = tuple(
        Figure(
            titles.get(column, column.removeprefix("lra-").title()), column, "test", "accuracy", "higher",
            paper.read_column(paper.ARENA, number), factor=100,
        )
        for number, column in enumerate(ARENA)
        if column in wanted
    )  # fmt: skip
    average = paper.read_column(paper.ARENA, 5) if len(wanted) == len(ARENA) else {}
    return Table("lra", "Long-Range Arena, accuracy in %", SIX, figures, "AVG", average)


def basis(columns: Sequence[str]) -> Table:
    """Return the ablation of P: every P with every Λ."""
    (column,) = _one_language(columns)
    figures = tuple(
        Figure(
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
    return Table("basis", title, tuple(paper.BASIS), figures, "Avg.", average, texts=(column,))


def normalizer(columns: Sequence[str]) -> Table:
    """Return every encoding with every normaliser, which the paper does not have."""
    (column,) = _one_language(columns)
    figures = tuple(
        Figure(
            f'"{name}"', column, "validation", "perplexity", "lower", {},
            changes={"model": {"normalizer": name}, "variant": f"normalizer-{name}"},
        )
        for name in NORMALIZERS
        if name != "clamped"  # it only repeats what the authors ran
    )  # fmt: skip
    title = f"Encodings by rows, normalisers by columns, validation perplexity{_of_library(column)}"
    return Table("normalizer", title, SEVEN, figures, texts=(column,))


_TIMES = (1, 2, 4, 8, 16, 32)


def length(columns: Sequence[str]) -> Table:
    """Return models trained at one length and scored at others; "type2+yarn" scales its angles to each length."""
    (column,) = _one_language(columns)
    changes = {"lengths": _TIMES, "variant": "lengths"}
    figures = tuple(
        Figure(f"×{times}", column, f"×{times}", "perplexity", "lower", {}, changes=changes) for times in _TIMES
    )
    scaled = tuple(f"{row}+{kind}" for row in ("rope", "type2") for kind in ("interpolation", "ntk", "yarn"))
    rows = (*SEVEN, "recommended", *scaled)
    title = f"Validation perplexity at multiples of the trained length{_of_library(column)}"
    return Table("length", title, rows, figures, texts=(column,))


TABLES: dict[str, Callable[[Sequence[str]], Table]] = {
    "lm": language, "glue": glue, "imagenet": imagenet, "lra": arena, "basis": basis, "normalizer": normalizer,
    "length": length,
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
    found = _choose_columns(columns, LANGUAGE, ("wikitext103",))
    require(len(found) == 1, f"This table takes exactly one column; got {', '.join(found)}.")
    return found


def title_of(row: str) -> str:
    """Return the printed title of a row."""
    if row in paper.BASIS:
        return row
    method, scaling = split_row(row)
    return ", ".join(filter(None, (find_method(method).title, scaling)))

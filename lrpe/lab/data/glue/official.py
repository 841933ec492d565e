"""The eight tasks of GLUE in the paper's table, read from the official files."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from lrpe.errors import LrpeError, require, require_extras
from lrpe.lab.data.cache import digest, hash_files
from lrpe.lab.data.dataset import Dataset, Entry, Rows, Sample
from lrpe.lab.data.reading import read_lines

_Metric = Literal["accuracy", "matthews", "pearson", "f1"]


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE. Columns are header names, or indices where a file has no header."""

    name: str
    folder: str
    first: str | int
    second: str | int | None
    label: str | int
    labels: tuple[str, ...]  # in the order of their ids; empty for a regression
    metric: _Metric  # the primary one; accuracy and F1 are also computed where GLUE reports them
    summary: str
    files: tuple[tuple[str, str], ...] = (("train", "train.tsv"), ("validation", "dev.tsv"))

    @property
    def regression(self) -> bool:
        return not self.labels


_MNLI_FILES = (("train", "train.tsv"), ("validation", "dev_matched.tsv"), ("mismatched", "dev_mismatched.tsv"))
_ENTAILED = ("entailment", "not_entailment")
_YES_NO = ("0", "1")

TASKS = {
    task.name: task
    for task in (
        GlueTask(
            "mnli",
            "MNLI",
            "sentence1",
            "sentence2",
            "gold_label",
            ("entailment", "neutral", "contradiction"),
            "accuracy",
            "does the premise entail or contradict the hypothesis? matched and mismatched genres",
            _MNLI_FILES,
        ),
        GlueTask(
            "qnli",
            "QNLI",
            "question",
            "sentence",
            "label",
            _ENTAILED,
            "accuracy",
            "does the sentence answer the question?",
        ),
        GlueTask(
            "qqp",
            "QQP",
            "question1",
            "question2",
            "is_duplicate",
            _YES_NO,
            "accuracy",
            "do two questions ask the same?",
        ),
        GlueTask(
            "rte", "RTE", "sentence1", "sentence2", "label", _ENTAILED, "accuracy", "does one text entail the other?"
        ),
        GlueTask(
            "sst2", "SST-2", "sentence", None, "label", _YES_NO, "accuracy", "is a line of a film review positive?"
        ),
        GlueTask(
            "mrpc", "MRPC", "#1 String", "#2 String", "Quality", _YES_NO, "accuracy", "do two sentences say the same?"
        ),
        GlueTask("cola", "CoLA", 3, None, 1, _YES_NO, "matthews", "is a sentence grammatical?"),
        GlueTask(
            "stsb", "STS-B", "sentence1", "sentence2", "score", (), "pearson", "how alike are two sentences, 0 to 5?"
        ),
    )
}


_BROKEN = 0.01  # the largest tolerated share of broken lines; QQP has a few
_Column = str | int


def load_glue(task: str, path: Path, splits: tuple[str, ...] | None = None) -> Dataset:
    """Load the sentences and labels of a task from GLUE's folder or from the task's own.

    Every split that has a file is read; ``splits`` names the required ones.
    """
    about = TASKS[task]
    folder = path / about.folder if (path / about.folder).is_dir() else path
    rows, counts, files = {}, {}, []
    for split, name in about.files:
        file = next((folder / n for n in (name, f"{name}.gz") if (folder / n).is_file()), None)
        if file is not None:
            rows[split], counts[split] = read_file(file, about)
            files.append(file)
    missing = [name for split, name in about.files if split in (splits or ()) and split not in rows]
    require(
        not missing and len(rows) > 0,
        f"GLUE's {about.folder} consists of {', '.join(name for _, name in about.files)}; {str(folder)!r} lacks "
        f"{missing or 'all of them'}.",
    )
    facts = {
        "labels": 1 if about.regression else len(about.labels),
        "metric": about.metric,
        "balance": {split: count_labels(samples, about) for split, samples in rows.items()},
        "broken lines": counts,
        "content": hash_files(*files),
    }
    return Dataset(
        f"glue-{task}", {name: Rows(samples) for name, samples in rows.items()}, facts, partial(show, about=about)
    )


def count_labels(rows: list[Sample], about: GlueTask) -> list[int]:
    """Return the number of samples per label; the list is empty for a regression."""
    return [sum(row["label"] == label for row in rows) for label in range(len(about.labels))]


def read_file(file: Path, about: GlueTask) -> tuple[list[Sample], int]:
    """Return the samples of a file and the number of its broken lines."""
    lines = list(_read_cells(file))
    header = None if isinstance(about.first, int) else (lines.pop(0)[1] if lines else [])
    columns = _find_columns(file, about, header)
    rows, broken = [], []
    for number, cells in lines:
        try:
            rows.append(_read_row(cells, columns, about))
        except (IndexError, ValueError) as error:
            broken.append((number, str(error)))
    require(len(rows) > 0, f"{file} has no readable line; each line of {about.folder} must have a label and its text.")
    if len(broken) > max(5, _BROKEN * len(lines)):
        number, error = broken[0]
        raise LrpeError(
            f"{len(broken)} of {len(lines)} lines of {file} are broken, the first at line {number}: {error}."
        )
    return rows, len(broken)


def _read_cells(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of every non-empty line. GLUE does not use quoting."""
    for number, line in enumerate(read_lines(file), 1):
        if line.strip():
            text = line.removeprefix("\ufeff") if number == 1 else line
            yield number, text.rstrip("\r\n").split("\t")


def _find_columns(file: Path, about: GlueTask, header: list[str] | None) -> tuple[int, int | None, int]:
    """Return the column indices of the first text, the second text and the label."""

    def index(column: _Column | None) -> int | None:
        if column is None or isinstance(column, int):
            return column
        names = [name.strip() for name in header or []]
        require(column in names, f"{file} must have a column {column!r} in its header; got {names}.")
        return names.index(column)

    first, second, label = (index(column) for column in (about.first, about.second, about.label))
    assert first is not None
    assert label is not None
    return first, second, label


def _read_row(cells: list[str], columns: tuple[int, int | None, int], about: GlueTask) -> Sample:
    first, second, label = columns
    text, other = cells[first].strip(), None if second is None else cells[second].strip()
    if not text or other == "":
        raise ValueError("a text is empty")
    return {"first": text, "second": other, "label": _read_label(cells[label].strip(), about)}


def _read_label(text: str, about: GlueTask) -> int | float:
    if about.regression:
        score = float(text)
        if not 0 <= score <= 5:
            raise ValueError(f"the score must lie between 0 and 5; got {text!r}")
        return score
    if text not in about.labels:
        raise ValueError(f"the label must be one of {', '.join(about.labels)}; got {text!r}")
    return about.labels.index(text)


_HUB = {"mnli": ("premise", "hypothesis"), "mrpc": ("sentence1", "sentence2"), "cola": ("sentence", None)}
_HUB_SPLITS = {"train": "train", "validation": "validation", "validation_matched": "validation"}
_HUB_SPLITS |= {"validation_mismatched": "mismatched"}


def _load_from_hub(task: str) -> Dataset:
    """Load a task from the Hugging Face hub (nyu-mll/glue), which holds data and no code."""
    require_extras("Reading data from the hub", "hub")
    from datasets import load_dataset  # type: ignore[import-not-found]

    about = TASKS[task]
    first, second = _HUB.get(task, (about.first, about.second))
    downloaded = load_dataset("nyu-mll/glue", task)
    splits = {}
    for name in _HUB_SPLITS.keys() & downloaded.keys():
        rows = [
            {"first": row[first], "second": None if second is None else row[second], "label": row["label"]}
            for row in downloaded[name]
        ]
        splits[_HUB_SPLITS[name]] = Rows(rows)
    facts = {
        "labels": 1 if about.regression else len(about.labels),
        "metric": about.metric,
        "balance": {name: count_labels(split.rows, about) for name, split in splits.items()},
        "from": "nyu-mll/glue",
        "content": digest({name: split.rows for name, split in splits.items()}),
    }
    return Dataset(f"glue-{task}", dict(sorted(splits.items(), reverse=True)), facts, partial(show, about=about))


def show(sample: Sample, about: GlueTask) -> str:
    label = f"{sample['label']:.1f}" if about.regression else about.labels[sample["label"]]
    return f"{label}: {sample['first']}" + ("" if sample["second"] is None else f" ‖ {sample['second']}")


ENTRIES = tuple(
    Entry(
        f"glue-{task.name}",
        "sentences",
        f"GLUE {task.folder}: {task.summary}",
        "differs by task; see gluebenchmark.com",
        "https://gluebenchmark.com/tasks",
        f"{task.folder}/{{{','.join(name for _, name in task.files)}}}, plain or gzipped",
        partial(load_glue, task.name),
        partial(_load_from_hub, task.name),
    )
    for task in TASKS.values()
)

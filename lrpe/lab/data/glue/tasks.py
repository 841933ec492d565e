"""The eight tasks of GLUE in the paper's table: their files, the columns that are read, and their metrics."""

from dataclasses import dataclass
from typing import Literal

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

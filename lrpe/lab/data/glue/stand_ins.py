"""Substitutes for GLUE, generated from the standard library's docstrings and therefore easier than the real tasks.

Each has the inputs, labels and metric of the task that it replaces. Splits are by file, so that nothing leaks.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from lrpe.lab.data.dataset import Dataset, Entry, Rows, Sample
from lrpe.lab.data.glue.official import TASKS, count_labels, show
from lrpe.lab.data.standard_library import Docstring, fingerprint, read_docstrings
from lrpe.schema import Seed

_Maker = Callable[[Sequence[Docstring], np.random.Generator], Iterator[Sample]]
_TEXT_PACKAGES = ("encodings", "email", "xml", "html", "json", "codecs", "csv", "string", "textwrap", "re", "ast")
_TEXT_PACKAGES += ("tokenize", "gettext", "locale", "unicodedata", "configparser", "plistlib", "argparse", "optparse")


def load(task: str, seed: Seed = 0) -> Dataset:
    """Generate the substitute for a GLUE task from a seed, with labels as balanced as possible."""
    about = TASKS[task]
    rows: dict[str, list[Sample]] = {}
    for split, _ in about.files:
        source = "test" if split == "mismatched" else split
        chosen = [doc for doc in read_docstrings() if doc.split == source]
        generator = np.random.default_rng((seed, sum(map(ord, task + split))))
        rows[split] = list(MAKERS[task](chosen, generator))
    facts = {
        "labels": 1 if about.regression else len(about.labels),
        "metric": about.metric,
        "balance": {split: count_labels(samples, about) for split, samples in rows.items()},
        "content": fingerprint(),
        "stands in for": f"GLUE {about.folder}",
    }
    splits = {name: Rows(samples) for name, samples in rows.items()}
    return Dataset(f"embedded-{task}", splits, facts, partial(show, about=about))


def _make_sample(first: str, second: str | None, label: int | float) -> Sample:
    return {"first": first, "second": second, "label": label}


def _make_cola(docs: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """Replace CoLA: a sentence as it is (1), or with its words shuffled (0)."""
    for doc in docs:
        for sentence in doc.sentences:
            label = int(generator.random() < 0.5)
            yield _make_sample(sentence if label else _shuffle(sentence, generator), None, label)


def _make_sst2(docs: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """Replace SST-2: a sentence from a package about text and its encodings (1), or from another package (0)."""
    sides: tuple[list[str], list[str]] = ([], [])
    for doc in docs:
        sides[doc.module.package in _TEXT_PACKAGES].extend(doc.sentences)
    count = min(map(len, sides))
    for label, sentences in enumerate(sides):
        for index in generator.permutation(len(sentences))[:count]:
            yield _make_sample(sentences[index], None, label)


def _make_mrpc(docs: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """Replace MRPC and QQP: a sentence and itself with words dropped and two swapped (1), or another sentence (0)."""
    for doc in docs:
        for sentence in doc.sentences:
            label = int(generator.random() < 0.5)
            yield _make_sample(
                sentence, _drop_and_swap(sentence, generator) if label else _draw_other(docs, doc, generator), label
            )


def _make_stsb(docs: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """Replace STS-B: a sentence and a copy with words replaced; the score is 5 times the share of words kept."""
    for doc in docs:
        for sentence in doc.sentences:
            share = generator.integers(6) / 5
            words, others = sentence.split(), _draw_other(docs, doc, generator).split()
            kept = generator.random(len(words)) < share
            mixed = [
                word if keep else others[i % len(others)]
                for i, (word, keep) in enumerate(zip(words, kept, strict=True))
            ]
            yield _make_sample(sentence, " ".join(mixed), 5 * float(kept.mean()))


def _make_qnli(docs: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """Replace QNLI: a question about a name and its docstring's first sentence (entailment, 0), or another one (1)."""
    for doc in docs:
        label = int(generator.random() < 0.5)
        name = doc.name.strip("_").replace("_", " ")
        yield _make_sample(
            f"What does {name} do?", _draw_other(docs, doc, generator) if label else doc.sentences[0], label
        )


def _make_rte(docs: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """Replace RTE: a sentence and a part of it (entailment, 0), or a sentence from elsewhere (1)."""
    for doc in docs:
        for sentence in doc.sentences:
            label = int(generator.random() < 0.5)
            yield _make_sample(
                sentence, _draw_other(docs, doc, generator) if label else _draw_part(sentence, generator), label
            )


def _make_mnli(docs: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """Replace MNLI: a sentence and a part of it (0), another sentence (neutral, 1), or the negated part (2)."""
    for doc in docs:
        for sentence in doc.sentences:
            label = int(generator.integers(3))
            part = _draw_part(sentence, generator)
            yield _make_sample(
                sentence, (part, _draw_other(docs, doc, generator), f"It is not true that {part}")[label], label
            )


def _shuffle(sentence: str, generator: np.random.Generator) -> str:
    words = sentence.split()
    order = generator.permutation(len(words))
    return (
        _shuffle(sentence, generator) if (order == np.arange(len(words))).all() else " ".join(words[i] for i in order)
    )


def _drop_and_swap(sentence: str, generator: np.random.Generator) -> str:
    words = [word for word in sentence.split() if generator.random() > 0.15] or sentence.split()
    first = int(generator.integers(max(1, len(words) - 1)))
    words[first : first + 2] = reversed(words[first : first + 2])
    return " ".join(words)


def _draw_part(sentence: str, generator: np.random.Generator) -> str:
    words = sentence.split()
    length = int(generator.integers(3, len(words)))
    start = int(generator.integers(len(words) - length + 1))
    return " ".join(words[start : start + length])


def _draw_other(docs: Sequence[Docstring], than: Docstring, generator: np.random.Generator) -> str:
    """Return a sentence of another docstring of the same split."""
    while (doc := docs[int(generator.integers(len(docs)))]) is than:
        pass
    return doc.sentences[int(generator.integers(len(doc.sentences)))]


MAKERS: dict[str, _Maker] = {
    "mnli": _make_mnli,
    "qnli": _make_qnli,
    "qqp": _make_mrpc,
    "rte": _make_rte,
    "sst2": _make_sst2,
    "mrpc": _make_mrpc,
    "cola": _make_cola,
    "stsb": _make_stsb,
}

ENTRIES = tuple(
    Entry(
        f"embedded-{name}",
        "sentences",
        f"a substitute for GLUE {TASKS[name].folder}, generated from the standard library's docstrings",
        "the licence of your Python (PSF)",
        "included in your Python",
        None,
        partial(load, name),
    )
    for name in MAKERS
)

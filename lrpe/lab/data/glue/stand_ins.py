"""Tasks of GLUE's shape from the docstrings of the standard library: made, not annotated, so easier than the real ones.

Each has the inputs, the labels and the metric of the task whose place it takes; splits are by file, so nothing leaks.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from lrpe.lab.data.dataset import Dataset, Entry, Rows, Sample
from lrpe.lab.data.glue.official import show
from lrpe.lab.data.glue.tasks import TASKS
from lrpe.lab.data.standard_library import Docstring, fingerprint, read_docstrings
from lrpe.schema import Seed

_Maker = Callable[[Sequence[Docstring], np.random.Generator], Iterator[Sample]]
_TEXT_PACKAGES = ("encodings", "email", "xml", "html", "json", "codecs", "csv", "string", "textwrap", "re", "ast")
_TEXT_PACKAGES += ("tokenize", "gettext", "locale", "unicodedata", "configparser", "plistlib", "argparse", "optparse")


def load(task: str, seed: Seed = 0) -> Dataset:
    """The stand-in for a task of GLUE, drawn from a seed; the labels are balanced as far as they can be."""
    about = TASKS[task]
    rows: dict[str, list[Sample]] = {}
    for split, _ in about.files:
        source = "test" if split == "mismatched" else split
        chosen = [found for found in read_docstrings() if found.split == source]
        generator = np.random.default_rng((seed, sum(map(ord, task + split))))
        rows[split] = list(MAKERS[task](chosen, generator))
    facts = {
        "labels": 1 if about.regression else len(about.labels),
        "metric": about.metric,
        "content": fingerprint(),
        "stands in for": f"GLUE {about.folder}",
    }
    splits = {name: Rows(found) for name, found in rows.items()}
    return Dataset(f"embedded-{task}", splits, facts, partial(show, about=about))


def _make_sample(first: str, second: str | None, label: int | float) -> Sample:
    return {"first": first, "second": second, "label": label}


def _make_cola(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """CoLA's: a sentence as it is (1), or with its words shuffled (0)."""
    for doc in found:
        for sentence in doc.sentences:
            label = int(generator.random() < 0.5)
            yield _make_sample(sentence if label else _shuffle(sentence, generator), None, label)


def _make_sst2(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """SST-2's: does a sentence come from a package about text and its encodings (1), or from another (0)?"""
    sides: tuple[list[str], list[str]] = ([], [])
    for doc in found:
        sides[doc.module.package in _TEXT_PACKAGES].extend(doc.sentences)
    count = min(map(len, sides))
    for label, sentences in enumerate(sides):
        for index in generator.permutation(len(sentences))[:count]:
            yield _make_sample(sentences[index], None, label)


def _make_mrpc(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """MRPC's and QQP's: a sentence beside itself with a few words left out and two exchanged (1), or beside another."""
    for doc in found:
        for sentence in doc.sentences:
            label = int(generator.random() < 0.5)
            yield _make_sample(
                sentence, _drop_and_swap(sentence, generator) if label else _draw_other(found, doc, generator), label
            )


def _make_stsb(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """STS-B's: a sentence beside one of which it shares so many words; 5 is all of them."""
    for doc in found:
        for sentence in doc.sentences:
            share = generator.integers(6) / 5
            words, others = sentence.split(), _draw_other(found, doc, generator).split()
            kept = generator.random(len(words)) < share
            mixed = [
                word if keep else others[i % len(others)]
                for i, (word, keep) in enumerate(zip(words, kept, strict=True))
            ]
            yield _make_sample(sentence, " ".join(mixed), 5 * float(kept.mean()))


def _make_qnli(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """QNLI's: does the sentence say what the thing of that name does (entailment, 0), or another (1)?"""
    for doc in found:
        label = int(generator.random() < 0.5)
        name = doc.name.strip("_").replace("_", " ")
        yield _make_sample(
            f"What does {name} do?", _draw_other(found, doc, generator) if label else doc.sentences[0], label
        )


def _make_rte(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """RTE's: a part of what is said (entailment, 0), or a sentence from elsewhere (1)."""
    for doc in found:
        for sentence in doc.sentences:
            label = int(generator.random() < 0.5)
            yield _make_sample(
                sentence, _draw_other(found, doc, generator) if label else _draw_part(sentence, generator), label
            )


def _make_mnli(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """MNLI's: a part of what is said (0), a sentence from elsewhere (neutral, 1), or the part denied (2)."""
    for doc in found:
        for sentence in doc.sentences:
            label = int(generator.integers(3))
            said = _draw_part(sentence, generator)
            yield _make_sample(
                sentence, (said, _draw_other(found, doc, generator), f"It is not true that {said}")[label], label
            )


def _shuffle(sentence: str, generator: np.random.Generator) -> str:
    words = sentence.split()
    order = generator.permutation(len(words))
    return (
        _shuffle(sentence, generator) if (order == np.arange(len(words))).all() else " ".join(words[i] for i in order)
    )


def _drop_and_swap(sentence: str, generator: np.random.Generator) -> str:
    words = [word for word in sentence.split() if generator.random() > 0.15] or sentence.split()
    place = int(generator.integers(max(1, len(words) - 1)))
    words[place : place + 2] = reversed(words[place : place + 2])
    return " ".join(words)


def _draw_part(sentence: str, generator: np.random.Generator) -> str:
    words = sentence.split()
    length = int(generator.integers(3, len(words)))
    start = int(generator.integers(len(words) - length + 1))
    return " ".join(words[start : start + length])


def _draw_other(found: Sequence[Docstring], than: Docstring, generator: np.random.Generator) -> str:
    """A sentence of another docstring of the same split."""
    while (doc := found[int(generator.integers(len(found)))]) is than:
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
        f"GLUE {TASKS[name].folder}'s shape, made of the standard library's docstrings",
        "that of your Python (PSF)",
        "your Python",
        None,
        partial(load, name),
    )
    for name in MAKERS
)

"""Tasks of GLUE's shape from the docstrings of the standard library: made, not annotated, so easier than the real ones.

Each has the inputs, the labels and the metric of the task whose place it takes; splits are by file, so nothing leaks.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from lrpe.lab.data.dataset import Dataset, Entry, Rows, Sample
from lrpe.lab.data.glue.official import show
from lrpe.lab.data.glue.tasks import TASKS
from lrpe.lab.data.standard_library import Docstring, docstrings, fingerprint
from lrpe.schema import Seed

Maker = Callable[[Sequence[Docstring], np.random.Generator], Iterator[Sample]]
CODES_AND_TREES = ("encodings", "email", "xml", "html", "json", "codecs", "csv", "string", "textwrap", "re", "ast")
CODES_AND_TREES += ("tokenize", "gettext", "locale", "unicodedata", "configparser", "plistlib", "argparse", "optparse")


def load(task: str, seed: Seed = 0) -> Dataset:
    """The stand-in for a task of GLUE, drawn from a seed; the labels are balanced as far as they can be."""
    about = TASKS[task]
    rows: dict[str, list[Sample]] = {}
    for split, _ in about.files:
        source = "test" if split == "mismatched" else split
        chosen = [found for found in docstrings() if found.split == source]
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


def sample(first: str, second: str | None, label: int | float) -> Sample:
    return {"first": first, "second": second, "label": label}


def acceptable(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """CoLA's: a sentence as it is (1), or with its words shuffled (0)."""
    for doc in found:
        for sentence in doc.sentences:
            label = int(generator.random() < 0.5)
            yield sample(sentence if label else shuffled(sentence, generator), None, label)


def about_text(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """SST-2's: does a sentence come from a package about text and its encodings (1), or from another (0)?"""
    sides: tuple[list[str], list[str]] = ([], [])
    for doc in found:
        sides[doc.module.package in CODES_AND_TREES].extend(doc.sentences)
    count = min(map(len, sides))
    for label, sentences in enumerate(sides):
        for index in generator.permutation(len(sentences))[:count]:
            yield sample(sentences[index], None, label)


def paraphrases(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """MRPC's and QQP's: a sentence beside itself with a few words left out and two exchanged (1), or beside another."""
    for doc in found:
        for sentence in doc.sentences:
            label = int(generator.random() < 0.5)
            yield sample(sentence, worn(sentence, generator) if label else another(found, doc, generator), label)


def likeness(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """STS-B's: a sentence beside one of which it shares so many words; 5 is all of them."""
    for doc in found:
        for sentence in doc.sentences:
            share = generator.integers(6) / 5
            words, others = sentence.split(), another(found, doc, generator).split()
            kept = generator.random(len(words)) < share
            mixed = [
                word if keep else others[i % len(others)]
                for i, (word, keep) in enumerate(zip(words, kept, strict=True))
            ]
            yield sample(sentence, " ".join(mixed), 5 * float(kept.mean()))


def answered(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """QNLI's: does the sentence say what the thing of that name does (entailment, 0), or another (1)?"""
    for doc in found:
        label = int(generator.random() < 0.5)
        name = doc.name.strip("_").replace("_", " ")
        yield sample(f"What does {name} do?", another(found, doc, generator) if label else doc.sentences[0], label)


def entailed(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """RTE's: a part of what is said (entailment, 0), or a sentence from elsewhere (1)."""
    for doc in found:
        for sentence in doc.sentences:
            label = int(generator.random() < 0.5)
            yield sample(sentence, another(found, doc, generator) if label else part(sentence, generator), label)


def inferred(found: Sequence[Docstring], generator: np.random.Generator) -> Iterator[Sample]:
    """MNLI's: a part of what is said (0), a sentence from elsewhere (neutral, 1), or the part denied (2)."""
    for doc in found:
        for sentence in doc.sentences:
            label = int(generator.integers(3))
            said = part(sentence, generator)
            yield sample(sentence, (said, another(found, doc, generator), f"It is not true that {said}")[label], label)


def shuffled(sentence: str, generator: np.random.Generator) -> str:
    words = sentence.split()
    order = generator.permutation(len(words))
    return (
        shuffled(sentence, generator) if (order == np.arange(len(words))).all() else " ".join(words[i] for i in order)
    )


def worn(sentence: str, generator: np.random.Generator) -> str:
    words = [word for word in sentence.split() if generator.random() > 0.15] or sentence.split()
    place = int(generator.integers(max(1, len(words) - 1)))
    words[place : place + 2] = reversed(words[place : place + 2])
    return " ".join(words)


def part(sentence: str, generator: np.random.Generator) -> str:
    words = sentence.split()
    length = int(generator.integers(3, len(words)))
    start = int(generator.integers(len(words) - length + 1))
    return " ".join(words[start : start + length])


def another(found: Sequence[Docstring], than: Docstring, generator: np.random.Generator) -> str:
    """A sentence of another docstring of the same split."""
    while (doc := found[int(generator.integers(len(found)))]) is than:
        pass
    return doc.sentences[int(generator.integers(len(doc.sentences)))]


MAKERS: dict[str, Maker] = {
    "mnli": inferred,
    "qnli": answered,
    "qqp": paraphrases,
    "rte": entailed,
    "sst2": about_text,
    "mrpc": paraphrases,
    "cola": acceptable,
    "stsb": likeness,
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

"""Documents of the hub, by `datasets`: rows of a public dataset, none of its code."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import ModuleType
from typing import Any, NamedTuple

from lrpe.errors import LrpeError, require, require_extras
from lrpe.lab.data.text.folder import SPLIT_NAMES
from lrpe.lab.data.text.source import Document, Every, Source, choose_split, join_sources
from lrpe.lab.data.text.text_dataset import TextDataset, text_dataset, text_entry
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.schema import Count


class Repository(NamedTuple):
    """A dataset of the hub, written "owner/name:configuration@revision"; the last two may be left out."""

    name: str
    configuration: str | None
    revision: str | None


def parse_repository(text: str) -> Repository:
    """The repository that is written so.

    >>> parse_repository("wikimedia/wikipedia:20231101.en")
    Repository(name='wikimedia/wikipedia', configuration='20231101.en', revision=None)
    """
    left, _, revision = text.partition("@")
    name, _, configuration = left.partition(":")
    require(bool(name), f"A dataset of the hub is 'owner/name:configuration@revision'; got {text!r}.")
    return Repository(name, configuration or None, revision or None)


def hub_source(
    repository: str,
    name: str = "hub-text",
    column: str = "text",
    every: int = 1000,
    limit: int | None = None,
    streaming: bool = True,
) -> Source:
    """The rows of a dataset of the hub, of each of its splits the first ``limit``.

    They are read as they come, or if not ``streaming`` downloaded whole before. A dataset that has a training split
    alone holds out one row in ``every`` for validation and one for the test. What is made of the rows is kept under
    what is written here, so a revision that is a commit is the only one that never goes stale.
    """
    require(every >= 3, f"One row in `every` is for validation and one for the test, so every ≥ 3; got {every}.")
    where = parse_repository(repository)
    identity = {"hub": list(where), "column": column, "every": every, "limit": limit}

    def documents() -> Iterator[Document]:
        with _report_failures(where):
            splits = _open_splits(where, streaming)
            for split, rows in splits.items():
                for number, text in enumerate(_read_column(islice(rows, limit), column, where)):
                    yield Document(split if len(splits) > 1 else choose_split(number, every), text)

    return Source(name, identity, documents)


def _open_splits(where: Repository, streaming: bool) -> dict[str, Any]:
    """The rows of each split, by our names of the splits."""
    found = _import_datasets().load_dataset(
        where.name, where.configuration, revision=where.revision, streaming=streaming
    )
    require("train" in found, f"A dataset has a split named train; {where.name} has {', '.join(found) or 'none'}.")
    return {SPLIT_NAMES[name]: rows for name, rows in found.items() if name in SPLIT_NAMES}


def _read_column(rows: Iterable[dict[str, Any]], column: str, where: Repository) -> Iterator[str]:
    for number, row in enumerate(rows):
        text = row.get(column)
        if not isinstance(text, str):
            raise LrpeError(
                f"A row of {where.name} has its text in the column {column!r}; row {number} has "
                f"{', '.join(row)}. Name another column."
            )
        yield text


@contextmanager
def _report_failures(where: Repository) -> Iterator[None]:
    """What goes wrong inside is the hub's, the network's or the library's, which have no error in common."""
    try:
        yield
    except LrpeError:
        raise
    except Exception as error:
        raise LrpeError(
            f"{where.name} could not be read: {type(error).__name__}: {error}. Datasets that come with code are not "
            "read; for others see the network, or get the files and name them as the dataset `text`."
        ) from error


def _import_datasets() -> ModuleType:
    require_extras("Reading data of the hub", "hub")
    import datasets  # type: ignore[import-not-found]

    return datasets


def load(
    name: str,
    repository: str | Sequence[str],
    tokenizer: str | Tokenizer = "bpe:32000",
    length: Count = 512,
    packed: bool = False,
    column: str = "text",
    every: Every = 1000,
    limit: Count | None = None,
    streaming: bool = True,
) -> TextDataset:
    """Return one dataset of the hub, or several, one after the other; see ``hub_source`` for how rows are read."""
    names = [repository] if isinstance(repository, str) else list(repository)
    sources = [hub_source(each, name, column, every, limit, streaming) for each in names]
    return text_dataset(join_sources(name, sources), tokenizer, length, packed)


ENTRIES = (
    text_entry(
        name="hub-text",
        summary="Any dataset of the hub with a column of text: repository='owner/name:configuration@revision'.",
        licence="its own; see its page",
        source="https://huggingface.co/datasets",
        layout=None,
        load=None,
        hub=partial(load, "hub-text"),
    ),
)

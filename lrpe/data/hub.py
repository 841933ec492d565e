"""Documents of the hub, by `datasets`: rows of a public dataset, none of its code."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from types import ModuleType
from typing import Any, NamedTuple

from lrpe.data.entry import Entry
from lrpe.data.folder import SPLIT_NAMES
from lrpe.data.source import Document, Source, joined, share
from lrpe.data.text_dataset import TextDataset, text_dataset
from lrpe.errors import LrpeError, require


class Repository(NamedTuple):
    """ "owner/name:configuration@revision", of which the last two may be left out."""

    name: str
    configuration: str | None
    revision: str | None


def parse_repository(text: str) -> Repository:
    """
    >>> parse_repository("wikimedia/wikipedia:20231101.en")
    Repository(name='wikimedia/wikipedia', configuration='20231101.en', revision=None)
    """
    left, _, revision = text.partition("@")
    name, _, configuration = left.partition(":")
    require(bool(name), f"A dataset of the hub is 'owner/name:configuration@revision'; got {text!r}.")
    return Repository(name, configuration or None, revision or None)


def hub_source(
    repository: str, name: str = "hub-text", column: str = "text", every: int = 1000, limit: int | None = None
) -> Source:
    """The rows of a dataset of the hub, read as they come; of each of its splits the first ``limit``.

    One that has a training split alone holds out one row in ``every`` for validation and one for the test. The rows are
    cached under what is written here, so a revision that is a commit is the only one that never goes stale.
    """
    require(every >= 3, f"One row in `every` is for validation and one for the test, so every ≥ 3; got {every}.")
    where = parse_repository(repository)
    identity = {"hub": list(where), "column": column, "every": every, "limit": limit}
    return Source(name, identity, partial(read_rows, where, column, every, limit))


def read_rows(where: Repository, column: str, every: int, limit: int | None) -> Iterator[Document]:
    found = open_repository(where)
    splits = {name: SPLIT_NAMES[name] for name in found if name in SPLIT_NAMES}
    require("train" in splits, f"A dataset has a split named train; {where.name} has {', '.join(found) or 'none'}.")
    for name, split in splits.items():
        for number, text in enumerate(read_column(found[name], column, where, limit)):
            yield Document(split if len(splits) > 1 else share(number, every), text)


def read_column(rows: Iterable[dict[str, Any]], column: str, where: Repository, limit: int | None) -> Iterator[str]:
    for number, row in enumerate(islice(rows, limit)):
        text = row.get(column)
        if not isinstance(text, str):
            raise LrpeError(
                f"A row of {where.name} has its text in the column {column!r}; row {number} has "
                f"{', '.join(row)}. Name another column."
            )
        yield text


def open_repository(where: Repository) -> Any:
    """Its splits by name, each a stream of rows."""
    datasets = import_datasets()
    try:
        return datasets.load_dataset(where.name, where.configuration, revision=where.revision, streaming=True)
    except Exception as error:  # the network's, the hub's and the library's own, which have no base in common
        raise LrpeError(
            f"{where.name} could not be opened: {type(error).__name__}: {error}. Datasets that come with code are not "
            "read; for others see the network, or get the files and name them as the dataset `text`."
        ) from error


def import_datasets() -> ModuleType:
    try:
        import datasets  # type: ignore[import-not-found]
    except ImportError as error:
        raise LrpeError(
            "Data of the hub is read by `datasets`, which is not installed: pip install 'lrpe[hub]'. Or get the files "
            "(.txt, .jsonl) and name them as the dataset `text`."
        ) from error
    return datasets


def load(
    repository: str | Sequence[str],
    name: str = "hub-text",
    column: str = "text",
    every: int = 1000,
    limit: int | None = None,
    tokenizer: Any = "bpe:32000",
    **options: Any,
) -> TextDataset:
    """One dataset of the hub, or several, one after the other."""
    names = [repository] if isinstance(repository, str) else list(repository)
    sources = [hub_source(each, name, column, every, limit) for each in names]
    return text_dataset(joined(name, sources), tokenizer, **options)


ENTRIES = (
    Entry(
        name="hub-text",
        kind="text",
        summary="Any dataset of the hub with a column of text: repository='owner/name:configuration@revision'.",
        licence="its own; see its page",
        source="https://huggingface.co/datasets",
        layout=None,
        load=load,
    ),
)

"""Read documents from the Hugging Face hub with `datasets`: the rows of public datasets, never their code."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import ModuleType
from typing import Any, NamedTuple

from lrpe.errors import LrpeError, require, require_extras
from lrpe.lab.data.text.sources import SPLIT_NAMES, Document, Every, Source, choose_split, join_sources
from lrpe.lab.data.text.text_dataset import TextDataset, text_dataset, text_entry
from lrpe.lab.data.text.tokenizer import Tokenizer
from lrpe.schema import Count


class _Repository(NamedTuple):
    """A dataset on the hub, written "owner/name:configuration@revision"; configuration and revision are optional."""

    name: str
    configuration: str | None
    revision: str | None


def parse_repository(text: str) -> _Repository:
    """Parse a repository written as text.

    >>> parse_repository("wikimedia/wikipedia:20231101.en")
    _Repository(name='wikimedia/wikipedia', configuration='20231101.en', revision=None)
    """
    left, _, revision = text.partition("@")
    name, _, configuration = left.partition(":")
    require(bool(name), f"A repository is written 'owner/name:configuration@revision'; got {text!r}.")
    return _Repository(name, configuration or None, revision or None)


def hub_source(
    repository: str,
    name: str = "hub-text",
    column: str = "text",
    every: int = 1000,
    limit: int | None = None,
    streaming: bool = True,
) -> Source:
    """Return the rows of a dataset on the hub as a source.

    The prepared rows are cached under these arguments, so only a revision that is a commit never goes stale.

    Args:
        repository: "owner/name:configuration@revision".
        name: the name of the source.
        column: the column with the text.
        every: if there is only a training split, one row in ``every`` is for validation and one for the test.
        limit: read only the first ``limit`` rows of each split; None reads all.
        streaming: read rows as they arrive instead of downloading the whole dataset first.

    Raises:
        LrpeError: ``every`` is below 3, or ``repository`` has no name; reading raises it if the hub fails.
    """
    require(
        every >= 3,
        f"every must be at least 3: one row in `every` is for validation, one for the test; got every={every}.",
    )
    where = parse_repository(repository)
    identity = {"hub": list(where), "column": column, "every": every, "limit": limit}

    def documents() -> Iterator[Document]:
        with _report_failures(where):
            splits = _open_splits(where, streaming)
            for split, rows in splits.items():
                for number, text in enumerate(_read_column(islice(rows, limit), column, where)):
                    yield Document(split if len(splits) > 1 else choose_split(number, every), text)

    return Source(name, identity, documents)


def _open_splits(where: _Repository, streaming: bool) -> dict[str, Any]:
    """Return the rows of each split, under our names of the splits."""
    splits = _import_datasets().load_dataset(
        where.name, where.configuration, revision=where.revision, streaming=streaming
    )
    require("train" in splits, f"A dataset needs a split named train; {where.name} has {', '.join(splits) or 'none'}.")
    return {SPLIT_NAMES[name]: rows for name, rows in splits.items() if name in SPLIT_NAMES}


def _read_column(rows: Iterable[dict[str, Any]], column: str, where: _Repository) -> Iterator[str]:
    for number, row in enumerate(rows):
        text = row.get(column)
        if not isinstance(text, str):
            raise LrpeError(
                f"Row {number} of {where.name} has no text in column={column!r}; its columns are "
                f"{', '.join(row)}. Pass another column."
            )
        yield text


@contextmanager
def _report_failures(where: _Repository) -> Iterator[None]:
    """Raise ``LrpeError`` for any failure: the hub, the network and the library have no common error class."""
    try:
        yield
    except LrpeError:
        raise
    except Exception as error:
        raise LrpeError(
            f"{where.name} could not be read: {type(error).__name__}: {error}. Datasets that need code are not "
            "supported; otherwise check the network, or download the files and load them as the dataset `text`."
        ) from error


def _import_datasets() -> ModuleType:
    require_extras("Reading data from the hub", "hub")
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
    """Return one dataset of the hub, or several in a row; see ``hub_source`` for how rows are read."""
    names = [repository] if isinstance(repository, str) else list(repository)
    sources = [hub_source(each, name, column, every, limit, streaming) for each in names]
    return text_dataset(join_sources(name, sources), tokenizer, length, packed)


ENTRIES = (
    text_entry(
        name="hub-text",
        summary="Any dataset on the hub with a column of text: repository='owner/name:configuration@revision'.",
        licence="its own; see its page",
        source="https://huggingface.co/datasets",
        layout=None,
        load=None,
        hub=partial(load, "hub-text"),
    ),
)

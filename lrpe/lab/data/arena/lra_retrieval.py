"""Retrieval of Long-Range Arena: does one paper of the ACL Anthology cite the other? Byte by byte, each on its own.

The published files have no header and no quoting: label, two ids and two texts between tabs. A label is a number such
as 1.0, and a text is the way Python writes bytes, b'...' with its backslashes; it is taken as it stands, as the
official loader and the published results do.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lrpe.errors import require
from lrpe.lab.data.arena.byte_text import byte_facts, require_length, show_with
from lrpe.lab.data.arena.sequences import Pairs, Row, stored
from lrpe.lab.data.cache import hash_files
from lrpe.lab.data.dataset import Dataset
from lrpe.lab.data.entry import Entry
from lrpe.lab.data.progress import progress
from lrpe.lab.data.reading import found, lines
from lrpe.typed import Count

VERSION = 1  # of what is written to the cache
LABELS = ("unrelated", "cites")
FILES = {"train": "train.tsv", "validation": "eval.tsv", "test": "test.tsv"}
NUMBERS = {b"0": 0, b"1": 1, b"0.0": 0, b"1.0": 1}


def load(path: Path, length: Count = 4000) -> Dataset:
    """The first ``length`` bytes of each paper."""
    require_length(length)
    files = {split: found(path, f"new_aan_pairs.{name}", name) for split, name in FILES.items()}
    recipe = {"version": VERSION, "length": length, "sources": hash_files(*files.values())}
    rows = {split: partial(read_tsv, file, length) for split, file in files.items()}
    splits, content = stored(Pairs, "lra-retrieval", recipe, rows)
    known = byte_facts(splits, LABELS, content=content)
    return Dataset("lra-retrieval", {**splits}, known, partial(show_with, LABELS))


def read_tsv(file: Path, length: int) -> Iterator[Row]:
    for number, line in progress(lines(file), file.name, unit="lines"):
        fields = line.split(b"\t")
        said = f"{str(file)!r}, line {number}"
        require(len(fields) == 5, f"{said}: a row is label, id1, id2, text1, text2; got {len(fields)} columns.")
        label = NUMBERS.get(fields[0].strip(b'"'))
        require(label is not None, f"{said}: a label is 0, 1, 0.0 or 1.0; got {fields[0][:20]!r}.")
        yield label, (fields[3][:length], fields[4][:length])  # type: ignore[misc]


ENTRIES = (
    Entry(
        "lra-retrieval",
        "pair",
        "does one paper of the ACL Anthology cite the other? byte by byte, up to 4,000 each",
        "CC BY-NC-SA 3.0 (ACL Anthology Network)",
        "https://github.com/google-research/long-range-arena (lra_release.gz, tsv_data)",
        "a folder with new_aan_pairs.{train,eval,test}.tsv: label, id1, id2, text1, text2, without a header",
        load,
    ),
)

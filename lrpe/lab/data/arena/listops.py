"""ListOps of Long-Range Arena: its published files, and as many expressions as one likes of the same kind."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

from lrpe.errors import LrpeError, require
from lrpe.lab.data.arena.listops_expressions import PADDING, SYMBOLS, Grammar, decode, encode, evaluate, generate
from lrpe.lab.data.arena.sequences import Row, Sequences, Size, sequence_facts, store
from lrpe.lab.data.cache import hash_files
from lrpe.lab.data.dataset import Dataset, Entry, Sample
from lrpe.lab.data.jobs import Processes, progress
from lrpe.lab.data.reading import find_file, number_lines
from lrpe.schema import Range, Seed

_VERSION = 1  # of what is written to the cache
_FILES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}


def load_generated(
    train: Size = 96_000,
    validation: Size = 2_000,
    test: Size = 2_000,
    seed: Seed = 0,
    max_depth: Annotated[int, Range(1, 1000)] = 10,
    max_args: Annotated[int, Range(2, 1000)] = 10,
    min_length: Annotated[int, Range(0, 10**6)] = 500,
    max_length: Annotated[int, Range(2, 10**6)] = 2000,
    processes: Processes | None = None,
) -> Dataset:
    """Generated expressions, all different; the defaults are those of the official generator."""
    sizes = {"train": train, "validation": validation, "test": test}
    require(min(sizes.values()) >= 1, f"A split has one sample or more; got {sizes}.")
    grammar = Grammar(max_depth, max_args, min_length, max_length)
    recipe = {"version": _VERSION, "seed": seed, "total": sum(sizes.values()), **asdict(grammar)}
    rows = partial(generate, sum(sizes.values()), seed, grammar, processes)
    stored_splits, content = store(Sequences, "listops", recipe, {"all": rows})
    whole = stored_splits["all"]
    parts = (whole.part(0, train), whole.part(train, train + validation), whole.part(train + validation, len(whole)))
    return _make_dataset("listops", dict(zip(sizes, parts, strict=True)), seed=seed, content=content, **asdict(grammar))


def load_official(path: Path) -> Dataset:
    """The files basic_{train,val,test}.tsv; every Target is checked against the value of its Source."""
    files = {split: find_file(path, name) for split, name in _FILES.items()}
    recipe = {"version": _VERSION, "sources": hash_files(*files.values())}
    rows = {name: partial(read_tsv, file) for name, file in files.items()}
    splits, content = store(Sequences, "lra-listops", recipe, rows)
    return _make_dataset("lra-listops", splits, content=content)


def _make_dataset(name: str, splits: dict[str, Sequences], **more: object) -> Dataset:
    known = sequence_facts(splits, vocabulary=16, labels=10, padding=PADDING, symbols=" ".join(SYMBOLS), **more)
    return Dataset(name, {**splits}, known, show)


def read_tsv(file: Path) -> Iterator[Row]:
    """The rows of a file with the columns Source and Target."""
    rows = number_lines(file)
    columns = next(rows, (1, b""))[1].split(b"\t")
    require(
        {b"Source", b"Target"} <= set(columns),
        f"{str(file)!r}, line 1: the columns are Source and Target; got {columns}.",
    )
    source, target = columns.index(b"Source"), columns.index(b"Target")
    for number, line in progress(rows, file.name, unit="lines"):
        fields = line.split(b"\t")
        try:
            require(len(fields) == len(columns), f"a row has {len(columns)} columns; got {len(fields)}.")
            yield _read_row(fields[source], fields[target])
        except LrpeError as error:
            raise LrpeError(f"{str(file)!r}, line {number}: {error}") from None


def _read_row(source: bytes, target: bytes) -> Row:
    ids = encode(source)
    value = evaluate(ids)
    require(target.strip() == str(value).encode(), f"the value of Source is {value}; got Target {target[:20]!r}.")
    return value, (ids,)


def show(sample: Sample) -> str:
    return f"{sample['label']} = {decode(sample['ids'])}"


ENTRIES = (
    Entry(
        "listops",
        "sequence",
        "nested MIN, MAX, MED and sums modulo 10, generated as Long-Range Arena does",
        "MIT (generated here)",
        "lrpe, which makes it",
        None,
        load_generated,
    ),
    Entry(
        "lra-listops",
        "sequence",
        "ListOps of Long-Range Arena, the published files",
        "Apache 2.0",
        "https://github.com/google-research/long-range-arena (lra_release.gz, listops-1000)",
        "a folder with basic_train.tsv, basic_val.tsv, basic_test.tsv: columns Source and Target",
        load_official,
    ),
)
